import { describe, expect, it } from 'vitest';
import { readAtlas, type Atlas } from '@/lib/atlas/atlas';
import {
  anchors,
  bySpecialization,
  findExpert,
  hashOf,
  isShown,
  noFilter,
  placeOf,
  topicColor,
} from './galaxy';

const found = readAtlas({
  categories: ['a', 'b', 'c'],
  experts: {
    '3:0': { affinity: { a: 1 }, label: 'specialist: a' },
    '3:1': { affinity: { a: 0.34, b: 0.33, c: 0.33 } },
    '9:0': { affinity: { b: 0.8, c: 0.2 }, label: 'generalist' },
  },
});
const atlas: Atlas = found ?? expect.fail('no atlas');

const length = (point: readonly number[]): number => Math.hypot(...point);

describe('anchors', () => {
  it.each([1, 2, 10])('of %d topics are apart, and on the sphere', (count) => {
    const points = anchors(count);
    for (const point of points) expect(length(point)).toBeCloseTo(1);
    for (const [place, [x, y, z]] of points.entries()) {
      for (const [ox, oy, oz] of points.slice(place + 1)) {
        expect(length([x - ox, y - oy, z - oz])).toBeGreaterThan(0.5);
      }
    }
  });
});

describe('placeOf', () => {
  const topics = anchors(3);
  it('has specialists at their topic and generalists in the middle', () => {
    const [own, even] = atlas.experts.map((expert) => placeOf(expert, topics));
    const [x, y, z] = topics[0] ?? [0, 0, 0];
    expect(length([(own?.[0] ?? 0) - x, (own?.[1] ?? 0) - y, (own?.[2] ?? 0) - z])).toBeLessThan(
      0.13,
    );
    expect(length(even ?? [])).toBeLessThan(0.13);
  });

  it('is the same every time, and another for another expert', () => {
    const [first] = atlas.experts;
    if (first === undefined) expect.fail('no expert');
    expect(placeOf(first, topics)).toEqual(placeOf(first, topics));
    expect(placeOf({ ...first, expert: 1 }, topics)).not.toEqual(placeOf(first, topics));
  });
});

it('spreads hashes evenly', () => {
  const hashes = Array.from({ length: 1000 }, (_, index) => hashOf(`3:${index}/0`));
  for (let part = 0; part < 10; part += 1) {
    const inside = hashes.filter((hash) => Math.floor(hash * 10) === part);
    expect(inside.length).toBeGreaterThan(60);
  }
});

describe('a filter', () => {
  const all = noFilter(atlas);
  const shown = (filter: typeof all): string[] =>
    atlas.experts.filter((e) => isShown(e, filter)).map((e) => `${e.layer}:${e.expert}`);

  it('shows all at first', () => {
    expect(all.layers).toEqual([3, 9]);
    expect(shown(all)).toEqual(['3:0', '3:1', '9:0']);
  });

  it('leaves topics, layers and generalists out', () => {
    expect(shown({ ...all, hiddenTopics: new Set([0]) })).toEqual(['9:0']);
    expect(shown({ ...all, layers: [4, 9] })).toEqual(['9:0']);
    expect(shown({ ...all, isSpecialistsOnly: true })).toEqual(['3:0']);
  });

  it('sorts what it shows', () => {
    expect(bySpecialization(atlas, all)).toEqual([0, 2, 1]);
    expect(bySpecialization(atlas, { ...all, layers: [9, 9] })).toEqual([2]);
  });
});

it.each([
  ['9:0', 2],
  ['9:1', -1],
  ['a', -1],
])('the search %j finds %d', (text, index) => {
  expect(findExpert(atlas, text)).toBe(index);
});

it('has a colour of its own for every topic', () => {
  expect(new Set(Array.from({ length: 40 }, (_, index) => topicColor(index))).size).toBe(40);
});
