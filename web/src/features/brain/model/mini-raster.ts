// The experts as one pixel each, with flashes that fade in a few coarse steps: a frame is one pass
// over a table of colours. Pure.
import type { ExpertMap } from '@/lib/experts/expert-map';
import { colorOf, packed, whitened, type Palette } from './palette';

const CELLS = 256; // values of a cell's byte
/** How white a flash is in its frames, the last one first; 0 is no flash. */
const LEVELS = [0, 0.2, 0.5, 1] as const;

export class MiniRaster {
  readonly pixels: Uint32Array<ArrayBuffer>;
  private readonly colors: Uint32Array;
  /** Frames that are left of each expert's flash. */
  private readonly left: Uint8Array;

  constructor(
    readonly rows: number,
    readonly cols: number,
    palette: Palette,
  ) {
    this.pixels = new Uint32Array(rows * cols);
    this.left = new Uint8Array(rows * cols);
    this.colors = Uint32Array.from({ length: CELLS * LEVELS.length }, (_, place) =>
      packed(whitened(colorOf(place % CELLS, palette), LEVELS[Math.floor(place / CELLS)] ?? 0)),
    );
  }

  light(indices: Iterable<number>): void {
    for (const index of indices) this.left[index] = LEVELS.length - 1;
  }

  /** End all flashes at once. */
  darken(): void {
    this.left.fill(0);
  }

  /** Write the next frame into `pixels`; whether it shows a flash, so that another has to follow. */
  step(cells: ExpertMap['cells']): boolean {
    const { pixels, colors, left } = this;
    let isLit = false;
    for (let index = 0; index < pixels.length; index += 1) {
      const level = left[index] ?? 0;
      pixels[index] = colors[level * CELLS + (cells[index] ?? 0)] ?? 0;
      if (level === 0) continue;
      isLit = true;
      left[index] = level - 1;
    }
    return isLit;
  }
}
