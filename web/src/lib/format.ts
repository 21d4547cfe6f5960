// Numbers as people read them, in the language of the page.

const made = new Map<string, Intl.NumberFormat>();

/** Kept, since making one takes longer than a hundred numbers. */
function formatter(locale: string, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = `${locale} ${options.style ?? ''} ${options.minimumFractionDigits ?? ''} ${options.maximumFractionDigits ?? ''}`;
  let found = made.get(key);
  if (found === undefined) made.set(key, (found = new Intl.NumberFormat(locale, options)));
  return found;
}

export function formatCount(value: number, locale: string): string {
  return formatter(locale, { maximumFractionDigits: 0 }).format(value);
}

export function formatDecimal(value: number, digits: number, locale: string): string {
  return formatter(locale, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(value);
}

/** A rate with as many digits as it deserves: 0.42, 3.1, 118. */
export function formatRate(value: number, locale: string): string {
  return formatDecimal(value, value < 1 ? 2 : value < 100 ? 1 : 0, locale);
}

/** Seconds: `0.35 s`, `12.4 s`, `3:07 min`. */
export function formatSeconds(seconds: number, locale: string): string {
  if (seconds >= 120) {
    const whole = Math.round(seconds);
    return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')} min`;
  }
  return `${formatDecimal(seconds, seconds >= 10 ? 1 : 2, locale)} s`;
}

/** A wait: milliseconds below a second, else seconds with one digit. */
export function formatWait(milliseconds: number, locale: string): string {
  return milliseconds < 1000
    ? `${formatCount(milliseconds, locale)} ms`
    : `${formatDecimal(milliseconds / 1000, 1, locale)} s`;
}

/** Gigabytes of 10^9 bytes. */
export function formatGigabytes(value: number, locale: string): string {
  return `${formatDecimal(value, value < 10 ? 2 : value < 100 ? 1 : 0, locale)} GB`;
}

export function formatPercent(share: number, locale: string): string {
  return formatter(locale, { style: 'percent', maximumFractionDigits: share < 0.1 ? 1 : 0 }).format(
    share,
  );
}

export function formatTime(timestamp: number, locale: string): string {
  return new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit' }).format(timestamp);
}

export function formatDate(timestamp: number, locale: string): string {
  return new Intl.DateTimeFormat(locale, { dateStyle: 'medium' }).format(timestamp);
}
