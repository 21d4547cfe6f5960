import { expect, it } from 'vitest';
import { parseRgb } from './token-color';

it('reads what browsers say of a colour', () => {
  expect(parseRgb('rgb(12, 34, 56)')).toEqual([12, 34, 56]);
  expect(parseRgb('rgba(1, 2, 3, 0.5)')).toEqual([1, 2, 3]);
});
