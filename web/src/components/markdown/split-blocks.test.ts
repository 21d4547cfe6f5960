import { describe, expect, it } from 'vitest';
import { splitBlocks } from './split-blocks';

describe('splitBlocks', () => {
  it.each([
    ['paragraphs', 'a\n\nb\n\nc', 3],
    ['a fence with blank lines', '```\na\n\nb\n```\n\nend', 2],
    ['an open fence', 'a\n\n```js\nx\n\ny', 2],
    ['a longer fence around a shorter', '````\n```\n\nx\n````\n\nend', 2],
    ['a loose list', '1. a\n\n2. b\n\n   more\n\nend', 2],
    ['definitions', 'see [a]\n\nmore\n\n[a]: https://example.com', 1],
  ])('cuts %s into the right number of parts', (_name, text, count) => {
    expect(splitBlocks(text)).toHaveLength(count);
  });

  it('loses nothing and only ever changes the last part as the text grows', () => {
    const text = '# T\n\ntext\n\n- a\n- b\n\n```py\nx\n\ny\n```\n\n| a |\n|---|\n| 1 |\n\nend';
    let before: string[] = [];
    for (let end = 1; end <= text.length; end += 1) {
      const parts = splitBlocks(text.slice(0, end));
      expect(parts.join('\n')).toBe(text.slice(0, end));
      expect(parts.slice(0, before.length - 1)).toEqual(before.slice(0, -1));
      before = parts;
    }
  });
});
