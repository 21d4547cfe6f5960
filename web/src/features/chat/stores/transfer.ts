// Export and import of conversations.
import i18next from 'i18next';
import { saveFile } from '@/lib/save-file';
import type { Conversation } from '../model/conversation';
import { fromJson, toJson, toMarkdown } from '../model/transfer-format';
import { addStored, openConversation, saveNow, useChat } from './chat-store';
import { loadAll } from './conversation-db';

function fileName(title: string): string {
  return (
    title
      .replace(/[^\p{L}\p{N}]+/gu, '-')
      .replace(/^-|-$/g, '')
      .slice(0, 60) || 'conversation'
  );
}

export async function exportConversation(
  conversation: Conversation,
  form: 'markdown' | 'json',
): Promise<void> {
  await openConversation(conversation.id);
  const messages = useChat.getState().messages[conversation.id] ?? {};
  const name = fileName(conversation.title);
  if (form === 'json') {
    const bundle = { conversations: [conversation], messages: Object.values(messages) };
    saveFile(`${name}.json`, toJson(bundle), 'application/json');
    return;
  }
  const names = { user: i18next.t('chat:you'), assistant: i18next.t('chat:assistant') };
  saveFile(`${name}.md`, toMarkdown(conversation, messages, names), 'text/markdown');
}

export async function exportAll(): Promise<void> {
  await saveNow();
  saveFile('conversations.json', toJson(await loadAll()), 'application/json');
}

/** Add the conversations of a file; returns how many. Throws an Error that says why not. */
export async function importFile(file: File): Promise<number> {
  const bundle = fromJson(await file.text(), Date.now());
  addStored(bundle);
  await saveNow();
  return bundle.conversations.length;
}
