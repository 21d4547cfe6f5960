import { describe, expect, it } from 'vitest';
import { resources } from './i18n';
import { detectLocale, LOCALES } from './locale';

// A language may have more plural forms than another: their names end in these.
const PLURAL = /_(?:zero|one|two|few|many|other)$/;

function keysOf(value: unknown, prefix = ''): string[] {
  if (typeof value !== 'object' || value === null) return [prefix.replace(PLURAL, '_#')];
  return Object.entries(value).flatMap(([name, inner]) =>
    keysOf(inner, prefix === '' ? name : `${prefix}.${name}`),
  );
}

function placesOf(value: unknown): string[] {
  return [...JSON.stringify(value).matchAll(/{{(\w+)}}/g)].map((found) => found[1] ?? '');
}

describe('texts', () => {
  const all = resources();
  const english = all.en ?? {};

  it.each(Object.keys(LOCALES))('are all there in %s', (locale) => {
    const keys = (texts: unknown): string[] => [...new Set(keysOf(texts))].sort();
    expect(keys(all[locale])).toEqual(keys(english));
  });

  it.each(Object.keys(LOCALES))('have all plural forms in %s', (locale) => {
    const forms = new Intl.PluralRules(locale).resolvedOptions().pluralCategories;
    const flat = JSON.stringify(all[locale]);
    for (const [, name] of flat.matchAll(/"(\w+)_other":/g)) {
      for (const form of forms) expect(flat).toContain(`"${name}_${form}":`);
    }
  });

  it.each(Object.keys(LOCALES))('are given the same values in %s', (locale) => {
    for (const [namespace, texts] of Object.entries(english)) {
      const wanted = new Set(placesOf(texts));
      expect(new Set(placesOf(all[locale]?.[namespace]))).toEqual(wanted);
    }
  });
});

describe('detectLocale', () => {
  it.each([
    ['it', ['en-US'], 'it'],
    [null, ['it-IT', 'en'], 'it'],
    [null, ['ja', 'IT'], 'it'],
    [null, ['ja'], 'en'],
    ['xx', [], 'en'],
  ] as const)('of stored %j and preferred %j is %s', (stored, preferred, locale) => {
    expect(detectLocale(stored, preferred)).toBe(locale);
  });
});
