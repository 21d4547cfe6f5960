import { copyText } from '@/lib/clipboard';
import { pathTo } from '../model/branches';
import { useChat } from './chat-store';

const FENCED = /^ {0,3}(`{3,}|~{3,})[^\n]*\n([\s\S]*?)\n {0,3}\1[`~]*\s*$/gm;

/** The last fenced block of a text, without its fence; null if there is none. */
export function lastCodeBlock(text: string): string | null {
  return [...text.matchAll(FENCED)].at(-1)?.[2] ?? null;
}

/** Copy the last answer of a conversation, or the last code block in it. */
export async function copyLast(id: string | undefined, what: 'answer' | 'code'): Promise<void> {
  if (id === undefined) return;
  const { conversations, messages } = useChat.getState();
  const path = pathTo(messages[id] ?? {}, conversations[id]?.leaf ?? null);
  const answer = path.findLast((message) => message.role === 'assistant');
  if (answer === undefined) return;
  const text = what === 'answer' ? answer.content : lastCodeBlock(answer.content);
  if (text !== null) await copyText(text);
}
