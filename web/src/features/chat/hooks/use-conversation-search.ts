// Which conversations have all the words that were typed, in their title or any message.
import { useEffect, useState } from 'react';
import { useChat } from '../stores/chat-store';
import { loadAll } from '../stores/conversation-db';

type Texts = ReadonlyMap<string, string>;

async function readTexts(): Promise<Texts> {
  const { messages } = await loadAll();
  const texts = new Map<string, string>();
  for (const { conversation, content } of messages) {
    texts.set(conversation, `${texts.get(conversation) ?? ''}\n${content.toLowerCase()}`);
  }
  return texts;
}

/** The ids; null while nothing is searched. */
export function useConversationSearch(words: string): ReadonlySet<string> | null {
  const conversations = useChat((state) => state.conversations);
  const [texts, setTexts] = useState<Texts>(new Map());
  const isSearching = words.trim() !== '';
  useEffect(() => {
    if (isSearching) void readTexts().then(setTexts);
  }, [isSearching]);
  if (!isSearching) return null;
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = Object.values(conversations).filter(({ id, title }) => {
    const text = `${title.toLowerCase()}\n${texts.get(id) ?? ''}`;
    return wanted.every((word) => text.includes(word));
  });
  return new Set(found.map(({ id }) => id));
}
