import { describe, expect, it } from 'vitest';
import {
  formatCount,
  formatGigabytes,
  formatPercent,
  formatRate,
  formatSeconds,
  formatWait,
} from './format';

describe('numbers as people read them', () => {
  it('follow the language', () => {
    expect(formatCount(19456, 'en')).toBe('19,456');
    expect(formatCount(19456, 'it')).toBe('19.456');
  });

  it.each([
    [0.424, '0.42'],
    [3.14, '3.1'],
    [118.4, '118'],
  ])('have as many digits as a rate of %d deserves', (rate, shown) => {
    expect(formatRate(rate, 'en')).toBe(shown);
  });

  it.each([
    [0.35, '0.35 s'],
    [12.44, '12.4 s'],
    [187, '3:07 min'],
    [119.9, '119.9 s'],
  ])('tell %d seconds', (seconds, shown) => {
    expect(formatSeconds(seconds, 'en')).toBe(shown);
  });

  it('tell a wait in milliseconds up to a second', () => {
    expect(formatWait(999, 'en')).toBe('999 ms');
    expect(formatWait(1234, 'en')).toBe('1.2 s');
  });

  it('tell sizes and shares', () => {
    expect([2.5, 24, 512].map((size) => formatGigabytes(size, 'en'))).toEqual([
      '2.50 GB',
      '24.0 GB',
      '512 GB',
    ]);
    expect(formatPercent(0.034, 'en')).toBe('3.4%');
    expect(formatPercent(0.5, 'en')).toBe('50%');
  });
});
