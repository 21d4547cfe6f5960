// Moments that all parts of the page share. What changes the page by a timer does it then, together:
// each frame has a cost of its own (layout, layers, the compositor), however little it draws.

/** Between two moments. The eye follows a text that grows eight times a second. */
export const TICK_MS = 125;

/** How long it is until the first moment that is at least `leastMs` away. */
export function untilTick(leastMs: number, now = performance.now()): number {
  const at = Math.ceil((now + leastMs) / TICK_MS) * TICK_MS;
  return at - now;
}

/** Do something again and again at such moments; returns how to end that. */
export function every(intervalMs: number, task: () => void): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const wait = (): void => {
    // A timer that comes late by less than a moment must not be a moment late ever after.
    timer = setTimeout(run, untilTick(intervalMs - TICK_MS / 2));
  };
  const run = (): void => {
    task();
    wait();
  };
  wait();
  return () => clearTimeout(timer);
}
