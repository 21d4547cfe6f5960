// Addresses: which server the page talks to, and where its routes are.

export const LOOPBACK_BASE = 'http://127.0.0.1:8000/v1';
const DEVELOPMENT_PORT = '5173';

/** The address without a trailing `/v1` and slashes: where `/health` and the like are. */
export function rootOf(base: string): string {
  const trimmed = base.trim().replace(/\/+$/, '');
  return trimmed.replace(/\/v1$/, '').replace(/\/+$/, '');
}

/** The base as entered, without spaces and trailing slashes. */
export function cleanBase(base: string): string {
  return base.trim().replace(/\/+$/, '');
}

export type BaseProblem = 'empty' | 'scheme' | 'malformed';

/** Why an address cannot be used; null if it can. */
export function baseProblem(base: string): BaseProblem | null {
  if (base.trim() === '') return 'empty';
  let url: URL;
  try {
    url = new URL(base.trim());
  } catch {
    return /^https?:\/\//i.test(base.trim()) ? 'malformed' : 'scheme';
  }
  return url.protocol === 'http:' || url.protocol === 'https:' ? null : 'scheme';
}

/** Whether a key would travel in clear text to another machine. */
export function isKeyExposed(base: string): boolean {
  if (baseProblem(base) !== null) return false;
  const { protocol, hostname } = new URL(base.trim());
  return protocol === 'http:' && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
}

type PageAddress = Pick<Location, 'protocol' | 'port' | 'origin'>;

/** Whether the page came from the server it is to talk to, not from the development server. */
export function isEngineServed(page: PageAddress): boolean {
  return /^https?:$/.test(page.protocol) && page.port !== DEVELOPMENT_PORT;
}

/** The base to start with: the stored one, unless it is a factory value of another place. */
export function initialBase(page: PageAddress, stored: string | null): string {
  const own = isEngineServed(page) ? `${page.origin}/v1` : LOOPBACK_BASE;
  if (stored === null || baseProblem(stored) !== null) return own;
  return cleanBase(stored) === LOOPBACK_BASE ? own : cleanBase(stored);
}
