import { useMemo } from 'react';
import { pathTo, type MessageTable } from '../model/branches';
import type { Message } from '../model/conversation';
import { useChat } from '../stores/chat-store';

const NONE: MessageTable = {};

/** The messages of a conversation that are shown. */
export function usePath(id: string): Message[] {
  const table = useChat((state) => state.messages[id] ?? NONE);
  const leaf = useChat((state) => state.conversations[id]?.leaf ?? null);
  return useMemo(() => pathTo(table, leaf), [table, leaf]);
}
