import { describe, expect, it } from 'vitest';
import type { Rgb } from '@/lib/token-color';
import { CellRaster } from './cell-raster';
import type { Grid } from './grid';

const PALETTE = { disk: [100, 0, 0], ram: [0, 100, 0], vram: [0, 0, 100] } as const;
const HOT_RAM = (1 << 6) | 24; // its tier's full colour

function gridOf(part: Partial<Grid>): Grid {
  return {
    rows: 2,
    cols: 2,
    isTurned: false,
    across: 2,
    down: 2,
    cellWidth: 4,
    cellHeight: 3,
    gapX: 1,
    gapY: 1,
    ratio: 1,
    ...part,
  };
}

function colorAt(raster: CellRaster, x: number, y: number, width: number): number[] {
  const bytes = new Uint8ClampedArray(raster.pixels.buffer);
  return [...bytes.slice(4 * (y * width + x), 4 * (y * width + x) + 4)];
}

describe('a cell', () => {
  const background: Rgb = [1, 2, 3];

  it('fills its place and leaves the gap', () => {
    const raster = new CellRaster(gridOf({}), PALETTE, background);
    raster.paint(3, HOT_RAM, 0);
    for (const [x, y] of [
      [4, 3],
      [6, 4],
    ] as const) {
      expect(colorAt(raster, x, y, 8)).toEqual([0, 100, 0, 255]);
    }
    for (const [x, y] of [
      [3, 3],
      [7, 3],
      [4, 5],
      [4, 2],
    ] as const) {
      expect(colorAt(raster, x, y, 8)).toEqual([1, 2, 3, 255]);
    }
  });

  it('turns white with its flash and back', () => {
    const raster = new CellRaster(gridOf({}), PALETTE, background);
    raster.paint(0, HOT_RAM, 1);
    expect(colorAt(raster, 0, 0, 8)).toEqual([255, 255, 255, 255]);
    raster.paint(0, HOT_RAM, 0.2);
    expect(colorAt(raster, 0, 0, 8)).toEqual([51, 131, 51, 255]);
    raster.paint(0, HOT_RAM, 0);
    expect(colorAt(raster, 0, 0, 8)).toEqual([0, 100, 0, 255]);
  });

  it('is placed by columns when layers go from left to right', () => {
    const raster = new CellRaster(gridOf({ isTurned: true }), PALETTE, background);
    raster.paint(1, HOT_RAM, 0); // layer 0, expert 1: first column, second line
    expect(colorAt(raster, 0, 3, 8)).toEqual([0, 100, 0, 255]);
    expect(colorAt(raster, 4, 0, 8)).toEqual([1, 2, 3, 255]);
  });

  it('has round corners where it is large, the same at all four', () => {
    const grid = gridOf({ cellWidth: 21, cellHeight: 21 });
    const raster = new CellRaster(grid, PALETTE, background);
    raster.paint(0, HOT_RAM, 0);
    const corners = [
      [0, 0],
      [19, 0],
      [0, 19],
      [19, 19],
    ].map(([x = 0, y = 0]) => colorAt(raster, x, y, 42));
    expect(new Set(corners.map(String)).size).toBe(1);
    expect(corners[0]?.[1]).toBeLessThan(30);
    expect(colorAt(raster, 10, 0, 42)).toEqual([0, 100, 0, 255]);
  });
});
