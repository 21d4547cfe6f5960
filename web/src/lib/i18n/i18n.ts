// Texts of the page: one JSON file per namespace and language under locales/. A namespace belongs to
// one feature; `common` to the shell, `frame` to what is shown first. Missing texts fall back to
// English.
import i18next, { type Resource } from 'i18next';
import { initReactI18next } from 'react-i18next';
import { readStored, writeStored } from '@/lib/storage';
import { LOCALE_KEY } from '@/lib/stored-looks';
import { detectLocale, type Locale } from './locale';

const files = import.meta.glob<Record<string, unknown>>('./locales/*/*.json', {
  eager: true,
  import: 'default',
});

/** All texts, by language and namespace. */
export function resources(): Resource {
  const found: Record<string, Record<string, Record<string, unknown>>> = {};
  for (const [path, texts] of Object.entries(files)) {
    const [, locale, namespace] = /locales\/([^/]+)\/([^/]+)\.json$/.exec(path) ?? [];
    if (locale === undefined || namespace === undefined) continue;
    (found[locale] ??= {})[namespace] = texts;
  }
  return found;
}

export function setLocale(locale: Locale): void {
  writeStored(LOCALE_KEY, locale);
  void i18next.changeLanguage(locale);
}

export function startI18n(): void {
  const follow = (locale: string): void => {
    document.documentElement.lang = locale;
    document.documentElement.dir = i18next.dir(locale);
  };
  i18next.on('languageChanged', follow);
  void i18next.use(initReactI18next).init({
    showSupportNotice: false, // an advertisement in the console of whoever looks there
    lng: detectLocale(readStored(LOCALE_KEY), navigator.languages),
    fallbackLng: 'en',
    resources: resources(),
    defaultNS: 'common',
    interpolation: { escapeValue: false }, // React escapes
    initAsync: false,
  });
}
