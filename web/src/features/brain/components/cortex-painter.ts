// Draws the experts: a picture in memory, of which a frame changes the flashing cells alone. Frames
// run only while a flash fades.
import { parseRgb } from '@/lib/token-color';
import { CellRaster } from '../model/cell-raster';
import type { ExpertMap } from '@/lib/experts/expert-map';
import { placeOf, type Grid } from '../model/grid';
import type { Palette } from '../model/palette';
import { Pulses } from '@/lib/experts/pulses';

interface Picture {
  raster: CellRaster;
  /** Shares its memory with the raster. */
  image: ImageData;
}

export class CortexPainter {
  private readonly context: CanvasRenderingContext2D | null;
  private grid: Grid | null = null;
  private map: ExpertMap | null = null;
  private picture: Picture | null = null;
  private pulses = new Pulses(0);
  private marked: number | null = null;
  private isStill = false;
  private frame = 0;

  constructor(private readonly canvas: HTMLCanvasElement) {
    // Kept where it is written: every frame comes from memory.
    this.context = canvas.getContext('2d', { alpha: false, willReadFrequently: true });
  }

  /** Lay out anew, e.g. for another width of the window. */
  setLook(grid: Grid, palette: Palette, isStill: boolean): void {
    this.grid = grid;
    this.isStill = isStill;
    this.canvas.width = grid.across * grid.cellWidth;
    this.canvas.height = grid.down * grid.cellHeight;
    const background = parseRgb(getComputedStyle(this.canvas).backgroundColor);
    const raster = new CellRaster(grid, palette, background);
    const bytes = new Uint8ClampedArray(raster.pixels.buffer);
    this.picture = { raster, image: new ImageData(bytes, this.canvas.width) };
    this.paintAll();
  }

  /** Show a map; what it says was just used flashes, unless it is the first one. */
  setMap(map: ExpertMap): void {
    const before = this.map;
    const isSameShape = before?.rows === map.rows && before.cols === map.cols;
    this.map = map;
    if (!isSameShape) {
      this.pulses = new Pulses(map.cells.length);
      this.paintAll();
      return;
    }
    if (map.seq !== before.seq && !this.isStill) this.pulses.start(map.hits);
    if (!this.isLaidOut) return;
    map.cells.forEach((cell, index) => {
      if (cell !== before.cells[index]) this.paint(index, 0);
    });
    this.request();
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
    if (!this.isLaidOut) return;
    this.map?.cells.forEach((_, index) => this.paint(index, 0));
    this.request();
  }

  /** False between another shape of the model and the layout for it. */
  private get isLaidOut(): boolean {
    const { grid, map } = this;
    return grid !== null && map?.rows === grid.rows && map.cols === grid.cols;
  }

  private paint(index: number, level: number): void {
    this.picture?.raster.paint(index, this.map?.cells[index] ?? 0, level);
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
    const { context, picture, grid } = this;
    if (context === null || picture === null || grid === null) return;
    context.putImageData(picture.image, 0, 0);
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
