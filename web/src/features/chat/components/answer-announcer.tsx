// Tells screen readers of a growing answer, sentence by sentence and at most once a second.
import { useEffect, useRef, useState } from 'react';
import { every } from '@/lib/ticks';
import type { Message } from '../model/conversation';

const INTERVAL_MS = 1000;

/** Where the last complete sentence of a text ends. */
export function sentenceEnd(text: string): number {
  let end = 0;
  for (const found of text.matchAll(/[.!?…:](?=\s)|\n/g)) end = found.index + 1;
  return end;
}

export function AnswerAnnouncer({ message }: { message: Message | undefined }) {
  const [said, setSaid] = useState('');
  const state = useRef({ id: '', place: 0 });
  const [mountedAt] = useState(() => Date.now());
  const latest = useRef(message);
  useEffect(() => {
    latest.current = message;
  });
  useEffect(() => {
    return every(INTERVAL_MS, () => {
      const current = latest.current;
      if (current?.role !== 'assistant') return;
      if (state.current.id !== current.id) {
        // An answer that was there before is not read out.
        const isNew = current.state === 'streaming' || current.created >= mountedAt - INTERVAL_MS;
        state.current = { id: current.id, place: isNew ? 0 : current.content.length };
      }
      const isWhole = current.state !== 'streaming';
      const end = isWhole ? current.content.length : sentenceEnd(current.content);
      if (end <= state.current.place) return;
      setSaid(current.content.slice(state.current.place, end));
      state.current.place = end;
    });
  }, [mountedAt]);
  return (
    <div className="visually-hidden" aria-live="polite">
      {said}
    </div>
  );
}
