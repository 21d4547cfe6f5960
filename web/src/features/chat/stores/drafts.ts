// What is being written: with its conversation once there is one, before that in small storage.
import { create } from 'zustand';
import { readStored, writeStored } from '@/lib/storage';
import type { Attachment } from '../model/conversation';
import { changeConversation, NEW, useChat } from './chat-store';

const KEY = 'colibri.draft';

const useNewDraft = create<{ text: string }>()(() => ({ text: readStored(KEY) ?? '' }));

export function useDraft(id: string): string {
  const ofNew = useNewDraft((state) => state.text);
  const ofOld = useChat((state) => state.conversations[id]?.draft ?? '');
  return id === NEW ? ofNew : ofOld;
}

export function setDraft(id: string, text: string): void {
  if (id !== NEW) {
    changeConversation(id, { draft: text });
    return;
  }
  useNewDraft.setState({ text });
  writeStored(KEY, text === '' ? null : text);
}

const NO_ATTACHMENTS: Attachment[] = [];

export function useAttachments(id: string): Attachment[] {
  return useChat((state) => state.attachments[id] ?? NO_ATTACHMENTS);
}

export function setAttachments(id: string, attachments: Attachment[]): void {
  useChat.setState((state) => ({ attachments: { ...state.attachments, [id]: attachments } }));
}
