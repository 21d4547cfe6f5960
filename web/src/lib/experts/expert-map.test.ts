import { describe, expect, it } from 'vitest';
import {
  countRange,
  countTiers,
  depthBand,
  heatOf,
  layerName,
  readMap,
  tierOf,
} from './expert-map';

const SENT = { rows: 1, cols: 4, map: '0041983f', hits: '05', seq: 7 } as const;
const asSent = { ...SENT, gpus: undefined, entropy: undefined, repin: undefined };
const experts = { ...asSent, layers: undefined, mtp_row: undefined };

describe('expert map', () => {
  it('has tier and heat of each expert and those just used', () => {
    const map = readMap(experts);
    const cells = [...(map?.cells ?? [])];
    expect(cells.map(tierOf)).toEqual(['disk', 'ram', 'vram', 'disk']);
    expect(cells.map(heatOf)).toEqual([0, 1, 24, 63]);
    expect([...(map?.hits ?? [])]).toEqual([0, 2]);
    expect(countTiers(map?.cells ?? new Uint8Array())).toEqual({ disk: 2, ram: 1, vram: 1 });
  });

  it.each([
    ['too short', { map: '004198' }],
    ['an odd number of digits', { map: '0041983' }],
    ['no hex', { map: '0041983g' }],
    ['a tier that there is not', { map: '004198ff' }],
    ['no rows', { rows: 0, map: '' }],
    ['half a row', { rows: 0.5, cols: 8 }],
    ['hits that are no hex', { hits: 'x0' }],
  ])('is none with %s', (_, change) => {
    expect(readMap({ ...experts, ...change })).toBeNull();
  });

  it('ignores bits behind the last expert, and takes no hits as none', () => {
    expect([...(readMap({ ...experts, hits: 'f8' })?.hits ?? [])]).toEqual([3]);
    expect([...(readMap({ ...experts, hits: '' })?.hits ?? [1])]).toEqual([]);
  });

  it('tells how often a heat means', () => {
    expect([0, 1, 2, 10].map(countRange)).toEqual([
      [0, 0],
      [1, 1],
      [2, 3],
      [512, 1023],
    ]);
  });

  it('names layers as the model does where it can', () => {
    const told = { layers: [3, 4, 78], mtpRow: 2 };
    expect(layerName(told, 1)).toEqual({ kind: 'layer', number: 4 });
    expect(layerName(told, 2)).toEqual({ kind: 'mtp', number: 78 });
    expect(layerName({ layers: undefined, mtpRow: undefined }, 1)).toEqual({
      kind: 'moe',
      number: 2,
    });
  });
});

it.each([
  [0, 'surface'],
  [1, 'surface'],
  [2, 'phrase'],
  [5, 'meaning'],
  [7, 'planning'],
  [9, 'output'],
  [10, 'draft'],
])('row %d of ten and a draft layer is of the band %s', (row, band) => {
  expect(depthBand({ rows: 11, mtpRow: 10 }, row)).toBe(band);
});
