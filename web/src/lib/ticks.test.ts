import { afterEach, describe, expect, it, vi } from 'vitest';
import { every, TICK_MS, untilTick } from './ticks';

describe('untilTick', () => {
  it.each([0, 1, 30.5, TICK_MS - 1, 10 * TICK_MS, 12_345.6])(
    'ends at the same moments, whenever it was asked: at %s ms',
    (now) => {
      for (const least of [1, TICK_MS / 2, TICK_MS, 3 * TICK_MS]) {
        const wait = untilTick(least, now);
        expect(((now + wait) / TICK_MS) % 1).toBeCloseTo(0, 9);
        expect(wait).toBeGreaterThanOrEqual(least - 1e-9);
        expect(wait).toBeLessThan(least + TICK_MS);
      }
    },
  );
});

describe('every', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it('comes as often as asked, at shared moments, until it is ended', () => {
    vi.useFakeTimers();
    const times: number[] = [];
    const end = every(1000, () => times.push(performance.now()));
    vi.advanceTimersByTime(5000 + TICK_MS);
    end();
    vi.advanceTimersByTime(5000);
    expect(times).toHaveLength(5);
    for (const time of times) expect(time % TICK_MS).toBeCloseTo(0, 6);
    expect((times[4] ?? 0) - (times[0] ?? 0)).toBeCloseTo(4000, 6);
  });
});
