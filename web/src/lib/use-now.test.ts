import { act, renderHook } from '@testing-library/react';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { useNow } from './use-now';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('renews the time as often as asked, and stops with its component', () => {
  const { result, unmount } = renderHook(() => useNow(1000));
  const began = result.current;
  act(() => void vi.advanceTimersByTime(999));
  expect(result.current).toBe(began);
  act(() => void vi.advanceTimersByTime(1));
  expect(result.current).toBe(began + 1000);
  unmount();
  expect(vi.getTimerCount()).toBe(0);
});
