// Does something as often as the machine can afford: what takes long is done less often, so that
// clicks and keys never wait behind it. Knows no React.

import { untilTick } from './ticks';

/** The task takes at most one part in this many of the time. */
const SHARE = 6;
const MOST_MS = 1000;

export class Paced {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private waitMs: number;

  /** `leastMs` lie between two runs at least; they come at the moments that the page shares. */
  constructor(
    private readonly task: () => void,
    private readonly leastMs: number,
  ) {
    this.waitMs = leastMs;
  }

  /** Run it soon; asking again before that changes nothing. */
  ask(): void {
    this.timer ??= setTimeout(() => this.run(), untilTick(this.waitMs));
  }

  cancel(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private run(): void {
    this.timer = undefined;
    const began = performance.now();
    this.task();
    // React renders what a store changed in a microtask, which was queued before this one.
    queueMicrotask(() => {
      const took = performance.now() - began;
      this.waitMs = Math.min(MOST_MS, Math.max(this.leastMs, took * (SHARE - 1)));
    });
  }
}
