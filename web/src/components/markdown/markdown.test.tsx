import { render, screen, waitFor } from '@testing-library/react';
import { describe, expect, it, vi } from 'vitest';
import Markdown from './markdown';

describe('Markdown', () => {
  it('shows HTML as text and makes nothing of it', () => {
    const { container } = render(<Markdown text={'<img src=x onerror=alert(1)> <b>x</b>'} />);
    expect(container).toHaveTextContent('<img src=x onerror=alert(1)> <b>x</b>');
    expect(container.querySelector('img, b')).toBeNull();
  });

  it.each(['javascript:alert(1)', 'data:text/html,x', 'JaVaScRiPt:x', 'vbscript:x'])(
    'makes no link to %s',
    (url) => {
      render(<Markdown text={`[word](${url})`} />);
      expect(screen.getByText('word')).toBeInTheDocument();
      expect(screen.queryByRole('link')).toBeNull();
    },
  );

  it('opens links elsewhere without telling them where from', () => {
    render(<Markdown text="https://example.com/a" />);
    const link = screen.getByRole('link');
    expect(link).toHaveAttribute('href', 'https://example.com/a');
    expect(link.getAttribute('rel')).toContain('noopener noreferrer');
  });

  it('makes links of images, so that no other host is asked', () => {
    const { container } = render(<Markdown text="![a picture](https://example.com/p.png)" />);
    expect(container.querySelector('img')).toBeNull();
    expect(screen.getByRole('link', { name: 'a picture' })).toBeInTheDocument();
  });

  it('knows tables, tasks and strikethrough', () => {
    const text = '| a |\n|---|\n| 1 |\n\n- [x] done\n- [ ] open\n\n~~gone~~';
    const { container } = render(<Markdown text={text} />);
    expect(screen.getByRole('table')).toHaveTextContent('a1');
    expect(screen.getAllByRole('checkbox')).toHaveLength(2);
    expect(container.querySelector('del')).toHaveTextContent('gone');
  });

  it('puts the headings of an answer below those of the page', () => {
    render(<Markdown text={'# one\n\n## two'} />);
    expect(screen.getByRole('heading', { level: 3 })).toHaveTextContent('one');
    expect(screen.getByRole('heading', { level: 4 })).toHaveTextContent('two');
  });

  it('shows a block whose fence is still open, and leaves single marks as they are', () => {
    render(<Markdown text={'2 * 3 ** 4\n\n```js\nlet x'} />);
    expect(screen.getByRole('figure')).toHaveTextContent('let x');
    expect(screen.getByText('2 * 3 ** 4')).toBeInTheDocument();
  });

  it('sets formulas, and leaves prices as they are', async () => {
    const { container } = render(
      <Markdown text={'From $5 to $10, as $x^2$ tells:\n\n$$\\frac{a}{b}$$\n\n\\[y\\]'} />,
    );
    await waitFor(() => expect(container.querySelectorAll('.katex')).toHaveLength(3));
    expect(container.querySelectorAll('.katex-display')).toHaveLength(2);
    expect(container.querySelector('p')).toHaveTextContent('From $5 to $10');
  });

  it('shows a formula that is none, or not yet, as it was written', async () => {
    render(<Markdown text={'see $\\frac{a$ here'} />);
    await vi.dynamicImportSettled();
    expect(screen.getByText('\\frac{a')).toBeInTheDocument();
  });

  it('colours code without losing a character', async () => {
    const code = 'const a = "è" // x\n\treturn `${a}`';
    const { container } = render(<Markdown text={`\`\`\`js\n${code}\n\`\`\``} />);
    await screen.findByText('const');
    expect(container.querySelector('pre code')?.textContent).toBe(code);
  });

  it('is quick with a long text that has no blank', () => {
    const text = 'x'.repeat(200_000);
    const began = performance.now();
    const { container } = render(<Markdown text={text} />);
    expect(performance.now() - began).toBeLessThan(3000);
    expect(container).toHaveTextContent(text);
  });

  it('sets no formula larger than the page, nor one of endless length', async () => {
    const long = '\\frac{a}{b} + '.repeat(1000);
    const { container } = render(<Markdown text={`$\\rule{90000em}{90000em}$ and $${long}1$`} />);
    await waitFor(() => expect(container.querySelectorAll('.katex')).toHaveLength(1));
    expect(container.innerHTML).not.toContain('90000em;');
    expect(container.textContent).toContain(`${long}1`);
  });
});
