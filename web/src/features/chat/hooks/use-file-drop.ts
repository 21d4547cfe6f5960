// Text files that are dropped, pasted or picked become attachments of the composer.
import { useEffect, useEffectEvent, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Attachment } from '../model/conversation';
import { useChat } from '../stores/chat-store';
import { setAttachments } from '../stores/drafts';
import { notify } from '@/lib/notices';

// The server takes bodies of 4 MiB; the rest of the conversation needs room too.
const MAX_BYTES = 2 * 1024 * 1024;

export async function readAsText(file: File): Promise<Attachment | 'large' | 'binary'> {
  if (file.size > MAX_BYTES) return 'large';
  // A folder cannot be read, nor what was deleted since.
  const text = await file.text().catch(() => '\0');
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

  const add = useEffectEvent((files: FileList) => void addFiles(files));
  useEffect(() => {
    // Anywhere on the page: beside the composer, the browser would leave the page for the file.
    const hasFiles = (event: DragEvent): boolean =>
      event.dataTransfer?.types.includes('Files') === true;
    const onDragOver = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setIsOver(true);
    };
    const onDragLeave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setIsOver(false);
    };
    const onDrop = (event: DragEvent): void => {
      setIsOver(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      if (event.dataTransfer !== null) add(event.dataTransfer.files);
    };
    window.addEventListener('dragover', onDragOver);
    window.addEventListener('dragleave', onDragLeave);
    window.addEventListener('drop', onDrop);
    return () => {
      window.removeEventListener('dragover', onDragOver);
      window.removeEventListener('dragleave', onDragLeave);
      window.removeEventListener('drop', onDrop);
    };
  }, []);
  return { isOver, addFiles };
}
