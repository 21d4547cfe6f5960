import { describe, expect, it } from 'vitest';
import { titleOf } from './conversation';

describe('the title of a conversation', () => {
  it('is the first line of what was said', () => {
    expect(titleOf('  one two\nthree')).toBe('one two');
  });

  it('is cut between what reads as one character', () => {
    const family = '\u{1f469}\u200d\u{1f469}\u200d\u{1f467}';
    expect(titleOf(`${'a'.repeat(56)}${family}${'b'.repeat(20)}`)).toBe(`${'a'.repeat(56)}…`);
    expect(titleOf('a'.repeat(70))).toBe(`${'a'.repeat(59)}…`);
  });
});
