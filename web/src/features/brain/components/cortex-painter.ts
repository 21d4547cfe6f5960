// Draws the experts. One pixel per expert on a small canvas, scaled up to the visible one: a frame
// costs the flashes alone, however large the cells are. Frames run only while a flash fades.
import type { ExpertMap } from '../model/expert-map';
import { placeOf, type Grid } from '../model/grid';
import { colorOf, writePixel, type Palette } from '../model/palette';
import { Pulses } from '../model/pulses';

const GLOW = 0.55;
const ROUND = 0.18; // corners of cells, of their size

interface Layer {
  context: CanvasRenderingContext2D;
  image: ImageData;
}

export class CortexPainter {
  private readonly context: CanvasRenderingContext2D | null;
  private grid: Grid | null = null;
  private map: ExpertMap | null = null;
  private palette: Palette | null = null;
  private cells: Layer | null = null;
  private glow: Layer | null = null;
  private gaps: CanvasPattern | null = null;
  private pulses = new Pulses(0);
  private marked: number | null = null;
  private isStill = false;
  private frame = 0;

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext('2d');
  }

  /** Lay out anew, e.g. for another width of the window. */
  setLook(grid: Grid, palette: Palette, isStill: boolean): void {
    this.grid = grid;
    this.palette = palette;
    this.isStill = isStill;
    this.canvas.width = grid.across * grid.cellWidth;
    this.canvas.height = grid.down * grid.cellHeight;
    this.cells = layer(grid);
    this.glow = layer(grid);
    this.gaps = this.context === null ? null : gapPattern(grid, this.context);
    this.paintAll();
  }

  /** Show a map; what it says was just used flashes, unless it is the first one. */
  setMap(map: ExpertMap): void {
    const before = this.map;
    const isSameShape = before?.rows === map.rows && before.cols === map.cols;
    this.map = map;
    if (!isSameShape) this.pulses = new Pulses(map.cells.length);
    else if (map.seq !== before.seq && !this.isStill) {
      this.pulses.start(map.hits);
    }
    this.paintAll();
  }

  mark(index: number | null): void {
    if (index === this.marked) return;
    this.marked = index;
    this.request();
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  private paintAll(): void {
    const { grid, map, cells } = this;
    // Between another shape of the model and the layout for it there is nothing to draw.
    if (grid === null || cells === null || map?.rows !== grid.rows || map.cols !== grid.cols)
      return;
    for (let index = 0; index < map.cells.length; index += 1) this.paint(index, 0);
    this.request();
  }

  private paint(index: number, level: number): void {
    const { grid, map, palette, cells, glow } = this;
    if (grid === null || map === null || palette === null || cells === null || glow === null)
      return;
    const { x, y } = placeOf(grid, index);
    const pixel = y * grid.across + x;
    writePixel(cells.image.data, pixel, colorOf(map.cells[index] ?? 0, palette), level);
    glow.image.data.fill(255, 4 * pixel, 4 * pixel + 3);
    glow.image.data[4 * pixel + 3] = 255 * level;
  }

  private request(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0;
      this.pulses.visit(now, (index, level) => this.paint(index, level));
      this.draw();
      if (!this.pulses.isIdle) this.request();
    });
  }

  private draw(): void {
    const { context, canvas, cells, glow, grid } = this;
    if (context === null || cells === null || glow === null || grid === null) return;
    const { width, height } = canvas;
    cells.context.putImageData(cells.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(cells.context.canvas, 0, 0, width, height);
    if (this.gaps !== null) {
      context.fillStyle = this.gaps;
      context.fillRect(0, 0, width, height);
    }
    if (!this.pulses.isIdle) {
      glow.context.putImageData(glow.image, 0, 0);
      context.imageSmoothingEnabled = true;
      context.globalCompositeOperation = 'lighter';
      context.globalAlpha = GLOW;
      context.drawImage(glow.context.canvas, 0, 0, width, height);
      context.globalCompositeOperation = 'source-over';
      context.globalAlpha = 1;
    }
    if (this.isStill) for (const index of this.map?.hits ?? []) this.outline(index, 0, 1);
    if (this.marked !== null) this.drawMark(this.marked, grid);
  }

  /** Show where an expert is: its layer as a band, itself framed. */
  private drawMark(index: number, grid: Grid): void {
    const { context, canvas } = this;
    if (context === null) return;
    const { x, y } = placeOf(grid, index);
    context.fillStyle = 'rgb(255 255 255 / 12%)';
    if (grid.isTurned) context.fillRect(x * grid.cellWidth, 0, grid.cellWidth, canvas.height);
    else context.fillRect(0, y * grid.cellHeight, canvas.width, grid.cellHeight);
    this.outline(index, 2 * Math.round(grid.ratio), 2 * Math.round(grid.ratio));
  }

  private outline(index: number, outset: number, thickness: number): void {
    const { context, grid } = this;
    if (context === null || grid === null) return;
    const { x, y } = placeOf(grid, index);
    const inset = thickness / 2 - outset;
    context.strokeStyle = '#fff';
    context.lineWidth = thickness;
    context.strokeRect(
      x * grid.cellWidth + inset,
      y * grid.cellHeight + inset,
      grid.cellWidth - grid.gapX - 2 * inset,
      grid.cellHeight - grid.gapY - 2 * inset,
    );
  }
}

function makeContext(width: number, height: number): CanvasRenderingContext2D | null {
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  return canvas.getContext('2d');
}

function layer({ across, down }: Grid): Layer | null {
  const context = makeContext(across, down);
  return context === null ? null : { context, image: context.createImageData(across, down) };
}

/** What lies between the cells, to be laid over all of them at once; null if nothing does. */
function gapPattern(grid: Grid, target: CanvasRenderingContext2D): CanvasPattern | null {
  const { cellWidth, cellHeight, gapX, gapY } = grid;
  const context = makeContext(cellWidth, cellHeight);
  if (context === null || gapX + gapY === 0) return null;
  context.fillStyle = getComputedStyle(target.canvas).backgroundColor;
  context.fillRect(0, 0, cellWidth, cellHeight);
  context.globalCompositeOperation = 'destination-out';
  context.beginPath();
  const radius = ROUND * Math.min(cellWidth, cellHeight);
  context.roundRect(0, 0, cellWidth - gapX, cellHeight - gapY, radius);
  context.fill();
  return target.createPattern(context.canvas, 'repeat');
}
