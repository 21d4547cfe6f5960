// How the experts are laid out on the canvas. Pure; sizes are device pixels unless they say else.

export interface Shape {
  rows: number;
  cols: number;
}

export interface Grid extends Shape {
  /** Layers go from left to right instead of from top to bottom, as on a phone held upright. */
  isTurned: boolean;
  across: number;
  down: number;
  cellWidth: number;
  cellHeight: number;
  gapX: number;
  gapY: number;
  /** Device pixels per pixel of the page. */
  ratio: number;
}

interface Room {
  width: number;
  height: number;
  ratio: number;
}

const MAX_CELL = 30; // pixels of the page
const MAX_STRETCH = 3;
const MIN_GAP_CELL = 4; // smaller cells would be mostly gap

function cellSize(across: number, down: number, { width, height, ratio }: Room): [number, number] {
  const fit = (length: number, count: number): number =>
    Math.max(1, Math.floor(Math.min((length * ratio) / count, MAX_CELL * ratio)));
  const cellWidth = fit(width, across);
  const cellHeight = fit(height, down);
  return [
    Math.min(cellWidth, cellHeight * MAX_STRETCH),
    Math.min(cellHeight, cellWidth * MAX_STRETCH),
  ];
}

/** The layout with the largest cells; `room` is in pixels of the page. */
export function fitGrid({ rows, cols }: Shape, room: Room): Grid {
  const straight = cellSize(cols, rows, room);
  const turned = cellSize(rows, cols, room);
  const isTurned = Math.min(...turned) > Math.min(...straight);
  const [cellWidth, cellHeight] = isTurned ? turned : straight;
  const gap = Math.max(1, Math.round(room.ratio));
  return {
    rows,
    cols,
    isTurned,
    across: isTurned ? rows : cols,
    down: isTurned ? cols : rows,
    cellWidth,
    cellHeight,
    gapX: cellWidth >= MIN_GAP_CELL * gap ? gap : 0,
    gapY: cellHeight >= MIN_GAP_CELL * gap ? gap : 0,
    ratio: room.ratio,
  };
}

/** Column and line of an expert on the canvas. */
export function placeOf(grid: Grid, index: number): { x: number; y: number } {
  const row = Math.floor(index / grid.cols);
  const col = index % grid.cols;
  return grid.isTurned ? { x: row, y: col } : { x: col, y: row };
}

/** The expert at a point of the page, from the corner of the canvas; null beside the grid. */
export function expertAt(grid: Grid, left: number, top: number): number | null {
  const x = Math.floor((left * grid.ratio) / grid.cellWidth);
  const y = Math.floor((top * grid.ratio) / grid.cellHeight);
  if (x < 0 || y < 0 || x >= grid.across || y >= grid.down) return null;
  return grid.isTurned ? x * grid.cols + y : y * grid.cols + x;
}

/** Where a key leads from an expert; null for keys that lead nowhere. */
export function stepBy(key: string, index: number, grid: Grid): number | null {
  const { rows, cols, isTurned } = grid;
  const row = Math.floor(index / cols);
  const col = index % cols;
  const to = (toRow: number, toCol: number): number =>
    Math.min(rows - 1, Math.max(0, toRow)) * cols + Math.min(cols - 1, Math.max(0, toCol));
  switch (key) {
    case 'ArrowRight':
      return isTurned ? to(row + 1, col) : to(row, col + 1);
    case 'ArrowLeft':
      return isTurned ? to(row - 1, col) : to(row, col - 1);
    case 'ArrowDown':
      return isTurned ? to(row, col + 1) : to(row + 1, col);
    case 'ArrowUp':
      return isTurned ? to(row, col - 1) : to(row - 1, col);
    case 'PageDown':
      return to(row + 1, col);
    case 'PageUp':
      return to(row - 1, col);
    case 'Home':
      return to(row, 0);
    case 'End':
      return to(row, cols - 1);
    default:
      return null;
  }
}

/** The rows whose labels are shown, `least` pixels of the page apart; the last one always is. */
export function labelledRows(grid: Grid, least: number): number[] {
  const size = (grid.isTurned ? grid.cellWidth : grid.cellHeight) / grid.ratio;
  const step = [1, 2, 5, 10, 20, 50, 100].find((every) => every * size >= least) ?? 200;
  const last = grid.rows - 1;
  const rows = Array.from({ length: Math.ceil(last / step) }, (_, place) => place * step);
  return [...rows.filter((row) => (last - row) * size >= least), last];
}
