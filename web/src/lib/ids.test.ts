import { expect, it } from 'vitest';
import { newId } from './ids';
import { withoutKey } from './without-key';
import { joinClasses } from './join-classes';

it('makes ids that differ', () => {
  const ids = Array.from({ length: 1000 }, newId);
  expect(new Set(ids).size).toBe(1000);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{24}$/);
});

it('leaves a key out of a copy', () => {
  const record = { a: 1, b: 2 };
  expect(withoutKey(record, 'a')).toEqual({ b: 2 });
  expect(record).toEqual({ a: 1, b: 2 });
});

it('joins the class names that are there', () => {
  expect(joinClasses('a', false, undefined, 'b')).toBe('a b');
});
