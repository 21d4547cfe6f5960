import { describe, expect, it } from 'vitest';
import { turnSchema } from '@/lib/schemas';
import { asCsv, asJson, figuresOf, percentile, sumPhases, verdictOf } from './turn-figures';

const turn = (part: object) => turnSchema.parse(part);

describe('figuresOf', () => {
  it('numbers the turns so that the last one has the server’s number', () => {
    const rows = figuresOf([turn({}), turn({}), turn({})], 130);
    expect(rows.map(({ number }) => number)).toEqual([128, 129, 130]);
  });

  it('makes numbers of turns without time, without steps, and with parts beyond the whole', () => {
    const [still, over] = figuresOf(
      [
        turn({ wall_s: 0, completion_tokens: 5, forwards: 0 }),
        turn({ wall_s: 1, expert_wait_s: 2, attention_s: 1 }),
      ],
      2,
    );
    expect(still).toMatchObject({ rate: 0, perForward: null, phases: { other: 0 } });
    expect(over).toMatchObject({ phases: { wait: 2, attention: 1, other: 0 } });
  });
});

describe('a window', () => {
  const rows = figuresOf(
    [
      turn({ wall_s: 4, expert_wait_s: 3, completion_tokens: 8, forwards: 4 }),
      turn({ wall_s: 2, expert_matmul_s: 1, completion_tokens: 2, expert_disk_s: 0.5 }),
    ],
    2,
  );

  it('adds its parts up', () => {
    expect(sumPhases(rows)).toEqual({ wait: 3, matmul: 1, attention: 0, head: 0, other: 2 });
  });

  it('is saved as lines and as JSON', () => {
    const [names, first, second, end] = asCsv(rows).split('\n');
    expect(names?.split(',').slice(0, 5)).toEqual([
      'turn',
      'wall_s',
      'prompt_tokens',
      'completion_tokens',
      'tokens_per_second',
    ]);
    expect(first).toBe('1,4,0,8,2,4,2,3,0,0,0,1,0');
    expect(second).toBe('2,2,0,2,1,0,,0,1,0,0,1,0.5');
    expect(end).toBe('');
    expect(JSON.parse(asJson(rows))).toMatchObject({ turns: [{ turn: 1, other_s: 1 }, {}] });
  });
});

describe('percentile', () => {
  it.each([
    [[], 0.5, 0],
    [[7], 0.9, 7],
    [[4, 1, 3, 2], 0.5, 2],
    [[4, 1, 3, 2], 0.9, 4],
  ])('of %j at %d is %d', (values, share, expected) => {
    expect(percentile(values, share)).toBe(expected);
  });
});

describe('verdictOf', () => {
  const none = { wait: 0, matmul: 0, attention: 0, head: 0, other: 0 };
  it.each([
    [none, 'unknown'],
    [{ ...none, wait: 9, matmul: 1 }, 'wait'],
    [{ ...none, matmul: 5, attention: 3, head: 2 }, 'matmul'],
    [{ ...none, wait: 1, matmul: 1, attention: 1 }, 'balanced'],
  ] as const)('of %j is %s', (phases, expected) => {
    expect(verdictOf(phases)).toBe(expected);
  });
});
