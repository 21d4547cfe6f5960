import { act, renderHook } from '@testing-library/react';
import { afterEach, expect, it, vi } from 'vitest';
import { useMedia } from './use-media';

afterEach(() => vi.unstubAllGlobals());

it('follows a media query', () => {
  const list = new EventTarget() as EventTarget & { matches: boolean };
  list.matches = false;
  vi.stubGlobal('matchMedia', () => list);
  const { result, unmount } = renderHook(() => useMedia('(max-width: 820px)'));
  expect(result.current).toBe(false);
  list.matches = true;
  act(() => void list.dispatchEvent(new Event('change')));
  expect(result.current).toBe(true);
  unmount(); // before the stub goes
});
