// Small settings in the browser's storage. A browser may refuse storage altogether (private
// windows, blocked cookies): then values live as long as the page.

const fallback = new Map<string, string>();

type Area = 'localStorage' | 'sessionStorage';

export function readStored(key: string, area: Area = 'localStorage'): string | null {
  try {
    return window[area].getItem(key);
  } catch {
    return fallback.get(key) ?? null;
  }
}

/** Keep a text; null forgets it. */
export function writeStored(key: string, value: string | null, area: Area = 'localStorage'): void {
  if (value === null) fallback.delete(key);
  else fallback.set(key, value);
  try {
    if (value === null) window[area].removeItem(key);
    else window[area].setItem(key, value);
  } catch {
    // kept in `fallback` alone
  }
}

/** Return a stored JSON value, or undefined if there is none that can be read. */
export function readStoredJson(key: string): unknown {
  const text = readStored(key);
  if (text === null) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
