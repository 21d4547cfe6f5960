import { describe, expect, it } from 'vitest';
import { parseKey, readAtlas, topTopics } from './atlas';

const PUBLISHED = {
  categories: ['code', 'law', 'math', 'poetry'],
  experts: {
    '53:179': {
      affinity: { code: 0.9, law: 0.05, math: 0.05, poetry: 0 },
      entropy: 0.57,
      top: 'code',
      label: 'specialist: code',
    },
    '3:7': {
      affinity: { code: 0.25, law: 0.25, math: 0.25, poetry: 0.25 },
      entropy: 2,
      top: 'code',
      label: 'generalist',
    },
  },
};

describe('readAtlas', () => {
  it('reads the published shape, by layer and number', () => {
    const atlas = readAtlas(PUBLISHED);
    expect(atlas?.topics).toEqual(['code', 'law', 'math', 'poetry']);
    expect(atlas?.numSkipped).toBe(0);
    const [even, code] = atlas?.experts ?? [];
    expect(even).toMatchObject({ layer: 3, expert: 7, isSpecialist: false, specialization: 0 });
    expect(code).toMatchObject({ layer: 53, expert: 179, top: 0, isSpecialist: true });
    expect(code?.entropy).toBeCloseTo(0.569, 3);
  });

  it('reads the richer file, whose affinities are a list or named', () => {
    const atlas = readAtlas({
      categories: ['a', 'b'],
      experts: [
        { layer: 1, expert: 2, total: 40, spec: 1, top_topic: 'b', p: [0, 1] },
        { layer: 1, expert: 3, p: { a: 0.5, b: 0.5 } },
      ],
    });
    expect(atlas?.experts.map(({ top, isSpecialist }) => [top, isSpecialist])).toEqual([
      [1, true],
      [0, false],
    ]);
  });

  it('leaves out what makes no sense, and counts it', () => {
    const good = { affinity: { code: 1 } };
    const atlas = readAtlas({
      categories: PUBLISHED.categories,
      experts: {
        '1:1': good,
        '01:1': good, // the same one again
        'x:1': good,
        '1:2': { affinity: { cooking: 1 } },
        '1:3': { affinity: { code: Number.NaN } },
        '1:4': { affinity: { code: -1, law: 2 } },
        '1:5': { affinity: {} },
        '1:6': null,
      },
    });
    expect(atlas?.experts).toHaveLength(1);
    expect(atlas?.numSkipped).toBe(7);
  });

  it.each([null, [], {}, { categories: ['a'], experts: {} }, { categories: ['a', 'b'] }])(
    'knows that %j is no atlas',
    (data) => {
      expect(readAtlas(data)).toBeNull();
    },
  );
});

it('finds the largest topics', () => {
  const atlas = readAtlas({ categories: ['a', 'b', 'c'], experts: { '0:0': { p: [1, 3, 0] } } });
  const expert = atlas?.experts[0] ?? expect.fail('no expert');
  expect(topTopics(expert, ['a', 'b', 'c'], 2)).toEqual([
    { topic: 'b', index: 1, share: 0.75 },
    { topic: 'a', index: 0, share: 0.25 },
  ]);
});

it.each([
  ['53:179', { layer: 53, expert: 179 }],
  [' 3 / 7 ', { layer: 3, expert: 7 }],
  ['3', null],
  ['a:b', null],
])('the key %j is %j', (text, expected) => {
  expect(parseKey(text)).toEqual(expected);
});
