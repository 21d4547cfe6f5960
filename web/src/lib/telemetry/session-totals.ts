// Tokens of the answers since the page was opened.
import { create } from 'zustand';

interface SessionTotals {
  prompt: number;
  completion: number;
}

export const useSessionTotals = create<SessionTotals>()(() => ({ prompt: 0, completion: 0 }));

export function addToSession(prompt: number, completion: number): void {
  useSessionTotals.setState((totals) => ({
    prompt: totals.prompt + prompt,
    completion: totals.completion + completion,
  }));
}
