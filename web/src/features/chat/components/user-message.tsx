// What the reader said: literal text, its files, and ways to change or remove it.
import { Pencil, Trash2 } from 'lucide-react';
import { memo, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Button, IconButton } from '@/components/button';
import { CopyButton } from '@/components/copy-button';
import type { Message } from '../model/conversation';
import { editAndSend } from '../stores/chat-actions';
import { addStored, removeMessage, useChat } from '../stores/chat-store';
import { Chip } from './attachment-chips';
import { BranchSwitch } from './branch-switch';
import { useUndo } from '../hooks/use-undo';
import styles from './user-message.module.css';

export const UserMessage = memo(function UserMessage({ message }: { message: Message }) {
  const { t } = useTranslation('chat');
  const [isEditing, setIsEditing] = useState(false);
  const isBusy = useChat((state) => state.live[message.conversation] !== undefined);
  const offerUndo = useUndo();

  function remove(): void {
    const { conversations, messages } = useChat.getState();
    const conversation = conversations[message.conversation];
    const before = Object.values(messages[message.conversation] ?? {});
    void removeMessage(message);
    offerUndo(t('turnDeleted'), () => {
      if (conversation) addStored({ conversations: [conversation], messages: before });
    });
  }

  if (isEditing) return <EditForm message={message} onClose={() => setIsEditing(false)} />;
  return (
    <article className={styles.message} aria-label={t('you')}>
      <div className={styles.bubble}>
        {message.attachments.length > 0 && (
          <div className={styles.files}>
            {message.attachments.map((attachment, index) => (
              <Chip key={index} attachment={attachment} />
            ))}
          </div>
        )}
        {message.content !== '' && (
          <div className={styles.text} dir="auto">
            {message.content}
          </div>
        )}
      </div>
      <div className={styles.tools}>
        <BranchSwitch message={message} />
        <CopyButton text={() => message.content} label={t('action.copyMessage')} />
        <IconButton
          size="small"
          label={t('action.edit')}
          icon={<Pencil size={14} />}
          disabled={isBusy}
          onClick={() => setIsEditing(true)}
        />
        <IconButton
          size="small"
          label={t('action.deleteTurn')}
          icon={<Trash2 size={14} />}
          disabled={isBusy}
          onClick={remove}
        />
      </div>
    </article>
  );
});

function EditForm({ message, onClose }: { message: Message; onClose: () => void }) {
  const { t } = useTranslation(['chat', 'common']);
  const field = useRef<HTMLTextAreaElement>(null);
  const isBusy = useChat((state) => state.live[message.conversation] !== undefined);
  function send(): void {
    const text = field.current?.value.trim() ?? '';
    if (isBusy || (text === '' && message.attachments.length === 0)) return;
    onClose();
    editAndSend(message, text);
  }
  return (
    <form
      className={styles.edit}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={field}
        aria-label={t('action.edit')}
        defaultValue={message.content}
        rows={Math.min(12, message.content.split('\n').length + 1)}
        // The reader asked to edit this very text.
        // eslint-disable-next-line jsx-a11y/no-autofocus
        autoFocus
        onKeyDown={(event) => {
          if (event.key === 'Escape') {
            event.stopPropagation();
            onClose();
          }
          if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            send();
          }
        }}
      />
      <div className={styles.editTools}>
        <Button variant="quiet" onClick={onClose}>
          {t('common:action.cancel')}
        </Button>
        <Button variant="primary" type="submit" disabled={isBusy}>
          {t('composer.send')}
        </Button>
      </div>
    </form>
  );
}
