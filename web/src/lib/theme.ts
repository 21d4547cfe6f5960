// Dark, light, or as the system has it. Colours themselves are in styles/tokens.css.
import { create } from 'zustand';
import { readStored, writeStored } from '@/lib/storage';
import { THEME_KEY } from '@/lib/stored-looks';

export type Theme = 'system' | 'dark' | 'light';
export const THEMES: readonly Theme[] = ['system', 'dark', 'light'];

function storedTheme(): Theme {
  const stored = readStored(THEME_KEY);
  return THEMES.find((theme) => theme === stored) ?? 'system';
}

function apply(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

interface ThemeState {
  theme: Theme;
  setTheme: (theme: Theme) => void;
}

export const useTheme = create<ThemeState>()((set) => ({
  theme: storedTheme(),
  setTheme: (theme) => {
    writeStored(THEME_KEY, theme);
    apply(theme);
    set({ theme });
  },
}));

export function startTheme(): void {
  apply(useTheme.getState().theme);
}

/** Whether the page is dark at the moment, for canvases. */
export function isDark(): boolean {
  const { theme } = useTheme.getState();
  return theme === 'system'
    ? !window.matchMedia('(prefers-color-scheme: light)').matches
    : theme === 'dark';
}
