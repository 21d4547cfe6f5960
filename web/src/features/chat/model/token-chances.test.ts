import { describe, expect, it } from 'vitest';
import { parseChunk } from '../api/stream-chat';
import { applyDelta, startTurn, type Turn } from './turn';
import { cutChances, tintOf, visibleToken, withChances, type TokenChance } from './token-chances';

function piece(text: string, chance: number | null = 0.5): TokenChance {
  return { text, chance, others: [] };
}

function chunk(content: string, tokens: [string, number][], delta: object = {}): string {
  const logprobs = tokens.map(([token, share]) => ({
    token,
    logprob: Math.log(share),
    top_logprobs: [{ token: 'else', logprob: Math.log(0.25) }],
  }));
  return JSON.stringify({
    choices: [{ delta: { content, ...delta }, logprobs: { content: logprobs } }],
  });
}

function run(lines: string[], before: Turn = startTurn(0)): Turn {
  return lines.flatMap(parseChunk).reduce((turn, delta) => applyDelta(turn, delta, 1), before);
}

function texts(turn: Turn): string[] {
  return turn.chances.map(({ text }) => text);
}

describe('the chances of tokens', () => {
  it('are read with the alternatives of each', () => {
    const [first] = run([chunk('Hi', [['Hi', 0.5]])]).chances;
    expect(first?.chance).toBeCloseTo(0.5, 6);
    expect(first?.others[0]).toMatchObject({ text: 'else' });
    expect(first?.others[0]?.chance).toBeCloseTo(0.25, 6);
  });

  it('always make up the text, also where tokens hold half a letter or more than is shown', () => {
    const turn = run([
      chunk('', [['\ufffd', 0.9]]),
      chunk('é', [['\ufffd', 0.2]]),
      chunk(' ab', [
        [' a', 1],
        ['b', 0.7],
      ]),
      chunk('c', [['cSTOP', 0.4]]),
    ]);
    expect(texts(turn)).toEqual(['é', ' a', 'b', 'c']);
    expect(turn.chances[0]?.chance).toBeCloseTo(0.2, 6);
    expect(texts(turn).join('')).toBe(turn.content);
  });

  it('are none where the server tells none', () => {
    expect(
      run([JSON.stringify({ choices: [{ delta: { content: 'a' }, logprobs: null }] })]).chances,
    ).toEqual([]);
  });

  it('leave out those of the reasoning and of tool calls', () => {
    const turn = run([
      chunk('', [['hm', 0.1]], { reasoning_content: 'hm' }),
      chunk('', [['{', 0.1]], {
        tool_calls: [{ index: 0, function: { name: 'f', arguments: '{' } }],
      }),
      chunk('yes', [['yes', 0.9]]),
    ]);
    expect(texts(turn)).toEqual(['yes']);
  });

  it('go on where an answer goes on, whether its beginning had some or not', () => {
    const before = { content: 'ab', reasoning: '', chances: [piece('a'), piece('b '), piece(' ')] };
    expect(texts(run([chunk('c', [['c', 1]])], startTurn(0, before)))).toEqual(['a', 'b', 'c']);
    const bare = startTurn(0, { content: 'ab', reasoning: '' });
    const turn = run([chunk('c', [['c', 1]])], bare);
    expect(turn.chances.map(({ text, chance }) => [text, chance])).toEqual([
      ['ab', null],
      ['c', 1],
    ]);
  });
});

describe('pieces', () => {
  it('are cut with the text', () => {
    expect(cutChances([piece('ab'), piece('cd'), piece('ef')], 3).map(({ text }) => text)).toEqual([
      'ab',
      'c',
    ]);
    expect(withChances([piece('a')], '', [])).toHaveLength(1);
  });

  it.each([
    [0.8, 'sure'],
    [0.79, 'unsure'],
    [0.4, 'unsure'],
    [0.39, 'doubtful'],
    [null, 'sure'],
  ] as const)('of chance %s are %s', (chance, tint) => {
    expect(tintOf(chance, { sure: 0.8, doubtful: 0.4 })).toBe(tint);
  });

  it('are named with their blanks', () => {
    expect(visibleToken('  a b\n')).toBe('␣␣a b↵');
  });
});
