import { afterEach, describe, expect, it, vi } from 'vitest';
import { isDark, startTheme, useTheme } from './theme';

afterEach(() => {
  useTheme.getState().setTheme('system');
  localStorage.clear();
  vi.unstubAllGlobals();
});

describe('the theme', () => {
  it('is kept and marks the page; the system one marks nothing', () => {
    useTheme.getState().setTheme('light');
    expect(document.documentElement.dataset.theme).toBe('light');
    expect(localStorage.getItem('colibri.theme')).toBe('light');
    useTheme.getState().setTheme('system');
    expect(document.documentElement.dataset.theme).toBeUndefined();
  });

  it('is there from the start', () => {
    useTheme.setState({ theme: 'dark' });
    startTheme();
    expect(document.documentElement.dataset.theme).toBe('dark');
    expect(isDark()).toBe(true);
  });

  it.each([true, false])('asks the system where none was chosen (light: %j)', (matches) => {
    vi.stubGlobal('matchMedia', () => ({ matches }));
    expect(isDark()).toBe(!matches);
  });
});
