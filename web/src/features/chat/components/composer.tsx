// Where a message is written. Enter sends, Shift+Enter breaks the line, Escape stops.
import { ArrowUp, Paperclip, Square } from 'lucide-react';
import { useEffect, useLayoutEffect, useRef, type KeyboardEvent } from 'react';
import { useTranslation } from 'react-i18next';
import { IconButton } from '@/components/button';
import { useConnection } from '@/lib/connection/connection-store';
import { joinClasses } from '@/lib/join-classes';
import { useFileDrop } from '../hooks/use-file-drop';
import { sendMessage } from '../stores/chat-actions';
import { useChat } from '../stores/chat-store';
import { setDraft, useAttachments, useDraft } from '../stores/drafts';
import { stopTurn } from '../stores/turn-runner';
import { AttachmentChips } from './attachment-chips';
import { ChanceNote, ChanceToggle, ThinkingToggle } from './composer-toggles';
import styles from './composer.module.css';
import { ContextMeter } from './context-meter';

interface ComposerProps {
  id: string;
  onSent: (conversation: string) => void;
}

export function Composer({ id, onSent }: ComposerProps) {
  const { t } = useTranslation('chat');
  const draft = useDraft(id);
  const attachments = useAttachments(id);
  const isRunning = useChat((state) => state.live[id] !== undefined);
  const hasModel = useConnection((state) => state.model !== '');
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const { isOver, addFiles } = useFileDrop(id);
  const canSend = !isRunning && hasModel && (draft.trim() !== '' || attachments.length > 0);

  useLayoutEffect(() => fitHeight(field.current), [draft]);
  useEffect(() => {
    if (!isRunning && window.matchMedia('(pointer: fine)').matches) field.current?.focus();
  }, [isRunning]);

  function send(): void {
    if (canSend) onSent(sendMessage(id, draft.trim(), attachments));
  }

  function onKeyDown(event: KeyboardEvent): void {
    if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    }
  }

  return (
    <form
      className={joinClasses(styles.composer, isOver && styles.over)}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <AttachmentChips id={id} />
      <textarea
        ref={field}
        id={`composer-${id}`}
        className={styles.field}
        rows={1}
        dir="auto"
        value={draft}
        placeholder={t('composer.placeholder')}
        aria-label={t('composer.label')}
        onChange={(event) => setDraft(id, event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={(event) => {
          if (event.clipboardData.files.length > 0) void addFiles(event.clipboardData.files);
        }}
      />
      <div className={styles.tools}>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            void addFiles(event.target.files);
            event.target.value = '';
          }}
        />
        <IconButton
          label={t('composer.attach')}
          icon={<Paperclip size={17} />}
          onClick={() => picker.current?.click()}
        />
        <ThinkingToggle />
        <ChanceToggle />
        <ContextMeter id={id} />
        <span className={styles.hint}>{t('composer.hint')}</span>
        {isRunning ? (
          <button
            type="button"
            className={styles.send}
            aria-label={t('composer.stop')}
            title={t('composer.stop')}
            onClick={() => {
              stopTurn(id);
              field.current?.focus();
            }}
          >
            <Square size={13} fill="currentColor" />
          </button>
        ) : (
          <button
            type="submit"
            className={styles.send}
            aria-label={t('composer.send')}
            title={t('composer.send')}
            disabled={!canSend}
          >
            <ArrowUp size={18} />
          </button>
        )}
      </div>
      <ChanceNote />
    </form>
  );
}

function fitHeight(field: HTMLTextAreaElement | null): void {
  if (field === null) return;
  field.style.height = 'auto';
  field.style.height = `${field.scrollHeight}px`;
}
