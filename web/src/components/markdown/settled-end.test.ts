import { describe, expect, it } from 'vitest';
import { settledEnd } from './settled-end';

describe('settledEnd', () => {
  it('ends after a line and leaves little behind it', () => {
    const code = 'let x = 1;\n'.repeat(300);
    const end = settledEnd(code);
    expect(code[end - 1]).toBe('\n');
    expect(end).toBeGreaterThan(0.85 * code.length);
    expect(settledEnd('let x')).toBe(0);
  });

  it('moves a few dozen times, and only forwards, however finely the text arrives', () => {
    const code = 'let x = 1;\n'.repeat(300);
    const ends = Array.from({ length: code.length }, (_, length) =>
      settledEnd(code.slice(0, length)),
    );
    expect(ends).toEqual([...ends].sort((a, b) => a - b));
    expect(new Set(ends).size).toBeLessThan(60);
  });
});
