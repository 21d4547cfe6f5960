import { describe, expect, it } from 'vitest';
import { messageOf } from '@/testing/messages';
import { omitHalf, sentFrom } from './omission';

const path = ['a', 'b', 'c', 'd', 'e', 'f'].map((id, index) =>
  messageOf({ id, role: index % 2 === 0 ? 'user' : 'assistant' }),
);

describe('leaving the oldest out', () => {
  it('takes half each time, whole exchanges, until nothing is left', () => {
    const gone: (string | null)[] = [];
    for (let from = 0; from < path.length; from = sentFrom(path, gone.at(-1))) {
      gone.push(omitHalf(path, from));
    }
    expect(gone).toEqual(['d', 'f']);
  });

  it('has nothing to take from an empty path', () => {
    expect(omitHalf([], 0)).toBeNull();
  });

  it('sends everything on a branch where nothing was left out', () => {
    expect(sentFrom(path, 'elsewhere')).toBe(0);
    expect(sentFrom(path, null)).toBe(0);
    expect(sentFrom(path, 'b')).toBe(2);
  });
});
