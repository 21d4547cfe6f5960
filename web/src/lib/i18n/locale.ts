// Which language the page speaks.
export const LOCALES = { en: 'English', it: 'Italiano' } as const;
export type Locale = keyof typeof LOCALES;

function isLocale(text: string | null | undefined): text is Locale {
  return text !== null && text !== undefined && text in LOCALES;
}

/** The stored language, else the first of the browser's that there is, else English. */
export function detectLocale(stored: string | null, preferred: readonly string[]): Locale {
  if (isLocale(stored)) return stored;
  for (const tag of preferred) {
    const language = tag.toLowerCase().split('-')[0];
    if (isLocale(tag)) return tag;
    if (isLocale(language)) return language;
  }
  return 'en';
}
