// Text files that are dropped, pasted or picked become attachments of the composer.
import { useState, type DragEvent } from 'react';
import { useTranslation } from 'react-i18next';
import type { Attachment } from '../model/conversation';
import { useChat } from '../stores/chat-store';
import { setAttachments } from '../stores/drafts';
import { notify } from '@/lib/notices';

// The server takes bodies of 4 MiB; the rest of the conversation needs room too.
const MAX_BYTES = 2 * 1024 * 1024;

export async function readAsText(file: File): Promise<Attachment | 'large' | 'binary'> {
  if (file.size > MAX_BYTES) return 'large';
  const text = await file.text();
  return text.includes('\0') || text.includes('\uFFFD') ? 'binary' : { name: file.name, text };
}

export function useFileDrop(id: string) {
  const { t } = useTranslation('chat');
  const [isOver, setIsOver] = useState(false);

  async function addFiles(files: FileList | null): Promise<void> {
    const added: Attachment[] = [];
    for (const file of Array.from(files ?? [])) {
      const attachment = await readAsText(file);
      if (typeof attachment === 'object') added.push(attachment);
      else notify({ kind: 'failed', text: t(`attach.${attachment}`, { name: file.name }) });
    }
    if (added.length > 0) {
      setAttachments(id, [...(useChat.getState().attachments[id] ?? []), ...added]);
    }
  }

  const dropProps = {
    onDragOver: (event: DragEvent) => {
      if (!event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      setIsOver(true);
    },
    onDragLeave: () => setIsOver(false),
    onDrop: (event: DragEvent) => {
      setIsOver(false);
      if (event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      void addFiles(event.dataTransfer.files);
    },
  };
  return { isOver, addFiles, dropProps };
}
