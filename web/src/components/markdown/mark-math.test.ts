import { describe, expect, it } from 'vitest';
import { markMath } from './mark-math';

describe('markMath', () => {
  it.each([
    ['a formula', 'so $x^2$ is', 'so $x^2$ is'],
    ['a formula of one letter', 'let $n$ be', 'let $n$ be'],
    ['prices', 'from $5 to $10', 'from \\$5 to \\$10'],
    ['a price and a formula', '$5 for $x$', '\\$5 for $x$'],
    ['a dollar alone', 'cash: $', 'cash: \\$'],
    ['an escaped dollar', 'cash: \\$5', 'cash: \\$5'],
    ['brackets of LaTeX', 'a \\( x_1 \\) b', 'a $x_1$ b'],
    ['a display', 'a\n\\[\nx\n\\]\n', 'a\n$$\nx\n$$\n'],
    ['two dollars', '$$\\sum_k k$$', '$$\\sum_k k$$'],
    ['code in a line', 'run `echo $A $B` now', 'run `echo $A $B` now'],
    ['a fence', '```sh\necho $A\n```\n$x$', '```sh\necho $A\n```\n$x$'],
    ['a fence that is open', '```sh\necho $A and $B', '```sh\necho $A and $B'],
  ])('knows %s', (_name, text, marked) => {
    expect(markMath(text)).toBe(marked);
  });
});
