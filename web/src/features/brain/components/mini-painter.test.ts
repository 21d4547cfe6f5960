import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ExpertMap } from '@/lib/experts/expert-map';
import { MiniPainter } from './mini-painter';

const PALETTE = { disk: [100, 0, 0], ram: [0, 100, 0], vram: [0, 0, 100] } as const;
const STEP_MS = 220;
const put = vi.fn();

function mapOf(part: Partial<ExpertMap>): ExpertMap {
  return {
    rows: 76,
    cols: 256,
    cells: new Uint8Array(76 * 256),
    hits: new Uint32Array(),
    seq: 1,
    layers: undefined,
    mtpRow: undefined,
    entropy: undefined,
    ...part,
  };
}

function painterOf(isStill = false): { painter: MiniPainter; canvas: HTMLCanvasElement } {
  const canvas = document.createElement('canvas');
  return { painter: new MiniPainter(canvas, PALETTE, isStill), canvas };
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('ImageData', vi.fn());
  const context = { putImageData: put } as unknown as CanvasRenderingContext2D;
  vi.spyOn(HTMLCanvasElement.prototype, 'getContext').mockReturnValue(context);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  put.mockReset();
});

describe('the small map', () => {
  it('is as small as it has experts, however large it is shown', () => {
    const { painter, canvas } = painterOf();
    painter.setMap(mapOf({}));
    expect([canvas.width, canvas.height]).toEqual([256, 76]);
  });

  it('is drawn once for a map, and never again while nothing changes', () => {
    painterOf().painter.setMap(mapOf({ hits: Uint32Array.of(5) })); // the first one flashes nothing
    vi.advanceTimersByTime(60_000);
    expect(put).toHaveBeenCalledTimes(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('fades a flash in four frames, then rests', () => {
    const { painter } = painterOf();
    painter.setMap(mapOf({}));
    vi.advanceTimersByTime(10 * STEP_MS);
    put.mockReset();
    painter.setMap(mapOf({ seq: 2, hits: Uint32Array.of(5) }));
    vi.advanceTimersByTime(60_000);
    expect(put).toHaveBeenCalledTimes(4);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('is drawn at most five times a second, however many reports come', () => {
    const { painter } = painterOf();
    for (let seq = 1; seq <= 100; seq += 1) {
      painter.setMap(mapOf({ seq, hits: Uint32Array.of(seq) }));
      vi.advanceTimersByTime(10);
    }
    expect(put.mock.calls.length).toBeLessThanOrEqual(5);
  });

  it('is not drawn while nobody sees it, and once without a flash when somebody does', () => {
    const { painter } = painterOf();
    painter.setMap(mapOf({}));
    painter.setMap(mapOf({ seq: 2, hits: Uint32Array.of(1) }));
    painter.setShown(false);
    put.mockReset();
    painter.setMap(mapOf({ seq: 3, hits: Uint32Array.of(2) }));
    vi.advanceTimersByTime(60_000);
    expect(put).not.toHaveBeenCalled();
    expect(vi.getTimerCount()).toBe(0);
    painter.setShown(true);
    vi.advanceTimersByTime(60_000);
    expect(put).toHaveBeenCalledTimes(1);
  });

  it('shows each report as it is where less motion is wanted', () => {
    const { painter } = painterOf(true);
    painter.setMap(mapOf({}));
    vi.advanceTimersByTime(10 * STEP_MS);
    painter.setMap(mapOf({ seq: 2, hits: Uint32Array.of(5) }));
    vi.advanceTimersByTime(60_000);
    expect(put).toHaveBeenCalledTimes(2);
  });

  it('takes another model in', () => {
    const { painter, canvas } = painterOf();
    painter.setMap(mapOf({}));
    vi.advanceTimersByTime(10 * STEP_MS);
    painter.setMap(mapOf({ rows: 2, cols: 4, cells: new Uint8Array(8), seq: 2 }));
    vi.advanceTimersByTime(10 * STEP_MS);
    expect([canvas.width, canvas.height]).toEqual([4, 2]);
    expect(put).toHaveBeenCalledTimes(2);
  });
});
