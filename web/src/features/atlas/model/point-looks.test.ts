import { describe, expect, it } from 'vitest';
import { readAtlas } from '@/lib/atlas/atlas';
import { readMap } from '@/lib/experts/expert-map';
import { noFilter } from './galaxy';
import { cellsOf, lookOf, type Coloring, type LookColors } from './point-looks';

const atlas =
  readAtlas({
    categories: ['a', 'b'],
    experts: { '3:1': { p: [1, 0] }, '4:0': { p: [0.5, 0.5] }, '9:9': { p: [0, 1] } },
  }) ?? expect.fail('no atlas');
const view = { rows: 2, cols: 2, map: '00981fff'.replace('ff', '58'), hits: '', seq: 1 };
const map = readMap({ ...view, layers: [3, 4] });
const colors: LookColors = {
  topics: [
    [1, 0, 0],
    [0, 1, 0],
  ],
  tiers: { disk: [0, 0, 0.1], ram: [0, 0, 0.2], vram: [0, 0, 0.3] },
  heat: [
    [0, 0, 0],
    [1, 1, 0],
  ],
  unknown: [0.5, 0.5, 0.5],
};

function look(index: number, coloring: Coloring, filter = noFilter(atlas)) {
  const cell = cellsOf(atlas, map)[index] ?? -1;
  return lookOf(atlas, index, {
    filter,
    coloring,
    colors,
    cell: cell < 0 ? undefined : map?.cells[cell],
  });
}

describe('cellsOf', () => {
  it('finds experts by the numbers of their layers', () => {
    expect([...cellsOf(atlas, map)]).toEqual([1, 2, -1]);
  });

  it('finds none on a map whose layers are not told', () => {
    expect([...cellsOf(atlas, readMap(view))]).toEqual([-1, -1, -1]);
    expect([...cellsOf(atlas, null)]).toEqual([-1, -1, -1]);
  });
});

describe('lookOf', () => {
  it('has specialists larger, in the colour of their topic', () => {
    expect(look(0, 'topic')).toEqual({ color: [1, 0, 0], size: 8 });
    expect(look(1, 'topic')).toMatchObject({ size: 4 });
  });

  it('has the colour of tier or heat, where they are known', () => {
    expect(look(0, 'tier').color).toEqual([0, 0, 0.3]);
    expect(look(0, 'heat').color).toEqual([1, 1, 0]);
    expect(look(2, 'tier').color).toEqual(colors.unknown);
  });

  it('hides what the filter hides', () => {
    expect(look(1, 'topic', { ...noFilter(atlas), isSpecialistsOnly: true }).size).toBe(0);
  });
});
