import { act, renderHook } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { addToSession, useSessionTotals } from './session-totals';
import { onExperts, useHealth, useTelemetryAge } from './hooks';
import { resetTelemetry, useTelemetry } from './telemetry-store';

const EXPERTS = { rows: 1, cols: 4, map: '0041983f', hits: '05', seq: 1 };

afterEach(() => {
  vi.useRealTimers();
  act(resetTelemetry);
});

describe('telemetry in components', () => {
  it('renders for its own part alone', () => {
    let renders = 0;
    renderHook(() => {
      renders += 1;
      return useHealth();
    });
    act(() => useTelemetry.setState({ experts: EXPERTS, heardAt: 1 }));
    expect(renders).toBe(1);
  });

  it('tells canvases of the latest map and of each one that follows, once', () => {
    const told: number[] = [];
    useTelemetry.setState({ experts: EXPERTS });
    const end = onExperts(({ seq }) => told.push(seq));
    useTelemetry.setState({ experts: { ...EXPERTS, seq: 2 } });
    useTelemetry.setState({ heardAt: 1 });
    end();
    useTelemetry.setState({ experts: { ...EXPERTS, seq: 3 } });
    expect(told).toEqual([1, 2]);
  });

  it('is old after three missed updates, or when the server is gone', () => {
    vi.useFakeTimers();
    useTelemetry.setState({ server: 'ready', heardAt: Date.now() });
    const { result } = renderHook(useTelemetryAge);
    expect(result.current).toEqual({ seconds: 0, isStale: false });
    act(() => void vi.advanceTimersByTime(17_000));
    expect(result.current).toEqual({ seconds: 17, isStale: true });
    act(() => useTelemetry.setState({ server: 'unreachable', heardAt: Date.now() }));
    expect(result.current?.isStale).toBe(true);
  });

  it('sums the tokens of the page up', () => {
    addToSession(19, 72);
    addToSession(1, 8);
    expect(useSessionTotals.getState()).toEqual({ prompt: 20, completion: 80 });
  });
});
