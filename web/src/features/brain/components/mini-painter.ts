// Draws the small map: a pixel per expert, which the page's style stretches. It shares the machine
// with an answer that grows, so frames are few: one when something was told, more only while a flash
// fades, none while nobody can see it.
import type { ExpertMap } from '@/lib/experts/expert-map';
import { TICK_MS, untilTick } from '@/lib/ticks';
import { MiniRaster } from '../model/mini-raster';
import type { Palette } from '../model/palette';

/** Between two frames at least; a flash fades in three of these. */
const STEP_MS = 1.5 * TICK_MS;

export class MiniPainter {
  private readonly context: CanvasRenderingContext2D | null;
  private map: ExpertMap | null = null;
  private raster: MiniRaster | null = null;
  private image: ImageData | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isShown = true;
  private hasNews = false;

  /** With `isStill` nothing flashes. */
  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly palette: Palette,
    private readonly isStill: boolean,
  ) {
    this.context = canvas.getContext('2d', { alpha: false, willReadFrequently: true });
  }

  /** Show a map; what it says was just used flashes, unless it is the first one. */
  setMap(map: ExpertMap): void {
    const { map: before, raster } = this;
    this.map = map;
    this.hasNews = true;
    if (raster?.rows !== map.rows || raster.cols !== map.cols) this.layOut(map);
    else if (this.isShown && !this.isStill && map.seq !== before?.seq) raster.light(map.hits);
    this.request();
  }

  /** Whether anyone can see it; what was told in between is drawn, but does not flash afterwards. */
  setShown(isShown: boolean): void {
    this.isShown = isShown;
    if (isShown) this.request();
    else this.stop();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.raster?.darken();
    this.hasNews = true; // whatever was fading has to be drawn once more
  }

  private layOut({ rows, cols }: ExpertMap): void {
    this.canvas.width = cols;
    this.canvas.height = rows;
    this.raster = new MiniRaster(rows, cols, this.palette);
    this.image = new ImageData(new Uint8ClampedArray(this.raster.pixels.buffer), cols);
  }

  /** Draw with the next frame that is due, or in the next step while steps are going on. */
  private request(): void {
    this.timer ??= setTimeout(() => this.step(), untilTick(0));
  }

  private step(): void {
    this.timer = undefined;
    const { map, raster, image } = this;
    if (!this.isShown || map === null || raster === null || image === null) return;
    if (!this.hasNews) return;
    this.hasNews = raster.step(map.cells);
    this.context?.putImageData(image, 0, 0);
    this.timer = setTimeout(() => this.step(), untilTick(STEP_MS));
  }
}
