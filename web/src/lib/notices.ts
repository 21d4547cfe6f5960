// Short notes over the page, from anywhere. What shows them is fetched with the first one.
import { create } from 'zustand';

export interface Notice {
  kind: 'plain' | 'done' | 'failed';
  text: string;
  /** What a button in it does. */
  action?: { label: string; run: () => void };
}

interface NoticesState {
  /** Not shown yet. */
  waiting: readonly Notice[];
  /** Whether there ever was one. */
  isUsed: boolean;
}

export const useNotices = create<NoticesState>()(() => ({ waiting: [], isUsed: false }));

export function notify(notice: Notice): void {
  useNotices.setState(({ waiting }) => ({ waiting: [...waiting, notice], isUsed: true }));
}

/** Take the notes that wait, to show them. */
export function takeNotices(): readonly Notice[] {
  const { waiting } = useNotices.getState();
  if (waiting.length > 0) useNotices.setState({ waiting: [] });
  return waiting;
}
