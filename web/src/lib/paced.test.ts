import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Paced } from './paced';
import { TICK_MS } from './ticks';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('Paced', () => {
  it('runs once for all that asked meanwhile', async () => {
    const task = vi.fn();
    const paced = new Paced(task, 50);
    paced.ask();
    paced.ask();
    await vi.advanceTimersByTimeAsync(49);
    expect(task).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1000);
    expect(task).toHaveBeenCalledOnce();
  });

  it('leaves five times as long as the work of its microtasks took', async () => {
    const task = vi.fn(() => queueMicrotask(() => vi.advanceTimersByTime(40)));
    const paced = new Paced(task, 50);
    paced.ask();
    await vi.advanceTimersByTimeAsync(50 + TICK_MS);
    expect(task).toHaveBeenCalledOnce();
    paced.ask();
    await vi.advanceTimersByTimeAsync(199);
    expect(task).toHaveBeenCalledOnce();
    await vi.advanceTimersByTimeAsync(1 + TICK_MS);
    expect(task).toHaveBeenCalledTimes(2);
  });

  it('runs no more when it is cancelled', async () => {
    const task = vi.fn();
    const paced = new Paced(task, 50);
    paced.ask();
    paced.cancel();
    await vi.advanceTimersByTimeAsync(1000);
    expect(task).not.toHaveBeenCalled();
  });
});
