// Flashes that fade by time and not by frames, so that every screen shows the same. Pure.

const FADE_MS = 270;
const GONE = 0.01;

export class Pulses {
  /** When each began; NaN before it was first shown, so that a late frame shows it in full. */
  private readonly started: Float64Array;
  private alive: number[] = [];

  constructor(count: number) {
    this.started = new Float64Array(count).fill(Number.NaN);
  }

  get isIdle(): boolean {
    return this.alive.length === 0;
  }

  start(indices: Iterable<number>): void {
    const all = new Set(this.alive);
    for (const index of indices) {
      this.started[index] = Number.NaN;
      all.add(index);
    }
    this.alive = [...all];
  }

  /** Tell how bright each living flash is; 0 once, when it is over. */
  visit(now: number, tell: (index: number, level: number) => void): void {
    this.alive = this.alive.filter((index) => {
      const began = this.started[index] ?? Number.NaN;
      if (Number.isNaN(began)) this.started[index] = now;
      const level = Number.isNaN(began) ? 1 : Math.exp((began - now) / FADE_MS);
      const isAlive = level >= GONE;
      tell(index, isAlive ? level : 0);
      return isAlive;
    });
  }
}
