// What a growing answer costs: how often its parts are parsed and coloured.
import { act, render } from '@testing-library/react';
import type ReactMarkdown from 'react-markdown';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import Markdown from './markdown';

const parse = vi.hoisted(() => vi.fn());
const highlight = vi.hoisted(() => vi.fn());

vi.mock('react-markdown', async (importOriginal) => {
  const { default: Actual } = await importOriginal<{ default: typeof ReactMarkdown }>();
  return {
    default: (props: Parameters<typeof ReactMarkdown>[0]) => {
      parse(props.children);
      return <Actual {...props} />;
    },
  };
});
vi.mock('./highlight', () => ({ loadHighlighter: () => Promise.resolve(highlight) }));

beforeEach(() => {
  parse.mockReset();
  highlight.mockReset().mockReturnValue(null);
});

describe('a growing answer', () => {
  it('is parsed in its last block alone', async () => {
    const finished = Array.from({ length: 20 }, (_, index) => `Paragraph ${index}.\n\n`).join('');
    const { rerender } = render(<Markdown text={`${finished}W`} isGrowing />);
    parse.mockReset();
    const words = 'Words one two three four five six seven eight nine ten'.split(' ');
    for (let count = 1; count <= words.length; count += 1) {
      await act(async () => {
        rerender(<Markdown text={finished + words.slice(0, count).join(' ')} isGrowing />);
        await Promise.resolve();
      });
    }
    expect(parse).toHaveBeenCalledTimes(words.length);
    for (const [text] of parse.mock.calls) expect(text).not.toContain('Paragraph');
  });

  it('is not parsed again because it ended', async () => {
    const text = 'One.\n\n```js\nlet x;\n```\n\nTwo.';
    const { rerender } = render(<Markdown text={text} isGrowing />);
    parse.mockReset();
    await act(async () => {
      rerender(<Markdown text={text} />);
      await Promise.resolve();
    });
    expect(parse).not.toHaveBeenCalled();
  });

  it('has its code coloured now and then, and whole once it ended', async () => {
    const code = Array.from({ length: 80 }, (_, index) => `const x${index} = ${index};`).join('\n');
    const textOf = (length: number): string => `\`\`\`js\n${code.slice(0, length)}`;
    const { container, rerender } = render(<Markdown text={textOf(1)} isGrowing />);
    let updates = 0;
    for (let length = 2; length <= code.length; length += 10, updates += 1) {
      await act(async () => {
        rerender(<Markdown text={textOf(length)} isGrowing />);
        await Promise.resolve();
      });
    }
    expect(updates).toBeGreaterThan(120);
    expect(highlight.mock.calls.length).toBeLessThan(60);
    await act(async () => {
      rerender(<Markdown text={`${textOf(code.length)}\n\`\`\``} />);
      await Promise.resolve();
    });
    expect(highlight).toHaveBeenLastCalledWith('js', code);
    expect(container.querySelector('pre code')?.textContent).toBe(code);
  });
});
