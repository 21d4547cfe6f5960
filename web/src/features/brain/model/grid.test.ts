import { describe, expect, it } from 'vitest';
import { expertAt, fitGrid, labelledRows, placeOf, stepBy } from './grid';

const LARGE = { rows: 76, cols: 256 };
const desktop = { width: 830, height: 640, ratio: 1 };
const phone = { width: 330, height: 560, ratio: 3 };

describe('grid', () => {
  it('fits into its room on whole device pixels', () => {
    for (const room of [desktop, phone, { ...desktop, ratio: 1.25 }]) {
      const grid = fitGrid(LARGE, room);
      expect(Number.isInteger(grid.cellWidth) && Number.isInteger(grid.cellHeight)).toBe(true);
      expect(grid.across * grid.cellWidth).toBeLessThanOrEqual(room.width * room.ratio);
      expect(grid.down * grid.cellHeight).toBeLessThanOrEqual(room.height * room.ratio);
    }
  });

  it('is turned where that makes cells larger', () => {
    expect(fitGrid(LARGE, desktop).isTurned).toBe(false);
    expect(fitGrid(LARGE, phone)).toMatchObject({ isTurned: true, across: 76, down: 256 });
  });

  it('bounds the cells of a small model', () => {
    const grid = fitGrid({ rows: 2, cols: 8 }, desktop);
    expect(grid).toMatchObject({ cellWidth: 30, cellHeight: 30, gapX: 1, gapY: 1 });
  });

  it('keeps a pixel per expert where there is no room', () => {
    expect(fitGrid(LARGE, { width: 10, height: 10, ratio: 1 }).cellWidth).toBe(1);
  });

  it.each([desktop, phone])('finds the expert at its place', (room) => {
    const grid = fitGrid(LARGE, room);
    for (const index of [0, 255, 256, 76 * 256 - 1]) {
      const { x, y } = placeOf(grid, index);
      const left = ((x + 0.5) * grid.cellWidth) / grid.ratio;
      const top = ((y + 0.5) * grid.cellHeight) / grid.ratio;
      expect(expertAt(grid, left, top)).toBe(index);
    }
    expect(expertAt(grid, -1, 5)).toBeNull();
    expect(expertAt(grid, 5, 5000)).toBeNull();
  });

  it('goes by keys as it looks, and stops at the edges', () => {
    const straight = fitGrid(LARGE, desktop);
    const turned = fitGrid(LARGE, phone);
    expect(stepBy('ArrowRight', 0, straight)).toBe(1);
    expect(stepBy('ArrowRight', 0, turned)).toBe(256);
    expect(stepBy('ArrowDown', 0, straight)).toBe(256);
    expect(stepBy('ArrowDown', 0, turned)).toBe(1);
    expect(stepBy('ArrowUp', 3, straight)).toBe(3);
    expect(stepBy('PageDown', 3, turned)).toBe(259);
    expect(stepBy('End', 256, straight)).toBe(511);
    expect(stepBy('Home', 300, straight)).toBe(256);
    expect(stepBy('a', 0, straight)).toBeNull();
  });

  it('labels as many layers as can be read', () => {
    const grid = fitGrid(LARGE, desktop);
    const rows = labelledRows(grid, 16);
    expect((rows[1] ?? 0) * grid.cellHeight).toBeGreaterThanOrEqual(16);
    expect(rows[0]).toBe(0);
    expect(rows.at(-1)).toBe(75); // the layer that drafts
    expect((75 - (rows.at(-2) ?? 0)) * grid.cellHeight).toBeGreaterThanOrEqual(16);
  });
});
