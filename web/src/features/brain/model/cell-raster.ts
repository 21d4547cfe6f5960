// Writes experts into the pixels of the canvas itself: nothing is scaled or blended afterwards, so a
// frame in which every expert flashes is one pass over the picture. Pure.
import type { Rgb } from '@/lib/token-color';
import { placeOf, type Grid } from './grid';
import { colorOf, packed, whitened, type Palette } from './palette';

const ROUND = 0.18; // corners of cells, of their size
const LEAST_ROUNDED = 8; // pixels; smaller corners cannot be seen
const SAMPLES = 4; // per pixel and direction, for the edge of a corner

interface Corner {
  /** Place in the picture, from the cell's first pixel. */
  offset: number;
  /** How much of the pixel the cell covers. */
  cover: number;
}

export class CellRaster {
  readonly pixels: Uint32Array<ArrayBuffer>;
  private readonly colors: Rgb[];
  private readonly corners: Corner[];
  private readonly width: number;

  constructor(
    private readonly grid: Grid,
    palette: Palette,
    private readonly background: Rgb,
  ) {
    this.width = grid.across * grid.cellWidth;
    this.pixels = new Uint32Array(this.width * grid.down * grid.cellHeight);
    this.pixels.fill(packed(background));
    this.colors = Array.from({ length: 256 }, (_, cell) => colorOf(cell, palette));
    this.corners = cornersOf(grid, this.width);
  }

  /** Draw one expert, `level` of the way to white. */
  paint(index: number, cell: number, level: number): void {
    const { grid, pixels, width } = this;
    const color = whitened(this.colors[cell] ?? this.background, level);
    const value = packed(color);
    const { x, y } = placeOf(grid, index);
    const first = y * grid.cellHeight * width + x * grid.cellWidth;
    const inner = grid.cellWidth - grid.gapX;
    const lines = grid.cellHeight - grid.gapY;
    for (let line = 0, start = first; line < lines; line += 1, start += width) {
      for (let place = start; place < start + inner; place += 1) pixels[place] = value;
    }
    for (const { offset, cover } of this.corners) {
      pixels[first + offset] = packed(mixed(this.background, color, cover));
    }
  }
}

function mixed(under: Rgb, over: Rgb, cover: number): Rgb {
  const part = (place: 0 | 1 | 2): number => under[place] + (over[place] - under[place]) * cover;
  return [part(0), part(1), part(2)];
}

/** The pixels of a cell that its round corners leave free, in part or whole. */
function cornersOf(grid: Grid, width: number): Corner[] {
  const inner = { x: grid.cellWidth - grid.gapX, y: grid.cellHeight - grid.gapY };
  if (Math.min(inner.x, inner.y) < LEAST_ROUNDED) return [];
  const radius = ROUND * Math.min(inner.x, inner.y);
  const reach = Math.ceil(radius);
  const corners: Corner[] = [];
  for (let y = 0; y < reach; y += 1) {
    for (let x = 0; x < reach; x += 1) {
      const cover = coverOf(x, y, radius);
      if (cover === 1) continue;
      for (const column of [x, inner.x - 1 - x]) {
        for (const line of [y, inner.y - 1 - y])
          corners.push({ offset: line * width + column, cover });
      }
    }
  }
  return corners;
}

/** How much of a pixel lies inside a corner whose circle is `radius` away from both edges. */
function coverOf(x: number, y: number, radius: number): number {
  let inside = 0;
  for (let sample = 0; sample < SAMPLES * SAMPLES; sample += 1) {
    const dx = radius - (x + ((sample % SAMPLES) + 0.5) / SAMPLES);
    const dy = radius - (y + (Math.floor(sample / SAMPLES) + 0.5) / SAMPLES);
    if (dx <= 0 || dy <= 0 || dx * dx + dy * dy <= radius * radius) inside += 1;
  }
  return inside / (SAMPLES * SAMPLES);
}
