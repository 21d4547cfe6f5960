// One line of the list of conversations.
import { Ellipsis, Pin } from 'lucide-react';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, useNavigate } from 'react-router';
import { IconButton } from '@/components/button';
import { Menu } from '@/components/menu';
import { useUndo } from '../hooks/use-undo';
import type { Conversation } from '../model/conversation';
import { changeConversation, deleteConversation, useChat } from '../stores/chat-store';
import { exportConversation } from '../stores/transfer';
import { stopTurn } from '../stores/turn-runner';
import styles from './conversation-item.module.css';

interface ConversationItemProps {
  conversation: Conversation;
  isCurrent: boolean;
  onOpen?: (() => void) | undefined;
}

export function ConversationItem({ conversation, isCurrent, onOpen }: ConversationItemProps) {
  const { t } = useTranslation('chat');
  const navigate = useNavigate();
  const offerUndo = useUndo();
  const [isNaming, setIsNaming] = useState(false);
  const isRunning = useChat((state) => state.live[conversation.id] !== undefined);
  const title = conversation.title || t('untitled');

  async function remove(): Promise<void> {
    stopTurn(conversation.id);
    const bringBack = await deleteConversation(conversation.id);
    if (isCurrent) void navigate('/');
    offerUndo(t('list.deleted'), bringBack);
  }

  if (isNaming) {
    return (
      <li>
        <NameForm
          title={conversation.title}
          onDone={(name) => {
            setIsNaming(false);
            if (name !== '') changeConversation(conversation.id, { title: name });
          }}
        />
      </li>
    );
  }
  return (
    <li className={styles.item} data-current={isCurrent}>
      <Link
        to={`/c/${conversation.id}`}
        className={styles.link}
        aria-current={isCurrent ? 'page' : undefined}
        onClick={onOpen}
        onDoubleClick={() => setIsNaming(true)}
      >
        <span className={styles.title} dir="auto">
          {title}
        </span>
        {isRunning && <span className={styles.running} role="img" aria-label={t('list.running')} />}
        {conversation.isPinned && <Pin size={13} aria-hidden="true" />}
      </Link>
      <Menu
        trigger={(props) => (
          <IconButton
            {...props}
            size="small"
            label={t('list.more', { title })}
            icon={<Ellipsis size={16} />}
          />
        )}
        items={[
          { label: t('list.rename'), onSelect: () => setIsNaming(true) },
          {
            label: t(conversation.isPinned ? 'list.unpin' : 'list.pin'),
            onSelect: () =>
              changeConversation(conversation.id, { isPinned: !conversation.isPinned }),
          },
          {
            label: t('list.export'),
            onSelect: () => void exportConversation(conversation, 'markdown'),
          },
          {
            label: t('list.exportJson'),
            onSelect: () => void exportConversation(conversation, 'json'),
          },
          { label: t('list.delete'), isDanger: true, onSelect: () => void remove() },
        ]}
      />
    </li>
  );
}

function NameForm({ title, onDone }: { title: string; onDone: (name: string) => void }) {
  const { t } = useTranslation('chat');
  return (
    <input
      className={styles.name}
      defaultValue={title}
      aria-label={t('list.title')}
      // The reader asked to rename it.
      // eslint-disable-next-line jsx-a11y/no-autofocus
      autoFocus
      onFocus={(event) => event.target.select()}
      onBlur={(event) => onDone(event.target.value.trim())}
      onKeyDown={(event) => {
        if (event.key === 'Enter') event.currentTarget.blur();
        if (event.key === 'Escape') {
          event.currentTarget.value = title;
          event.currentTarget.blur();
        }
      }}
    />
  );
}
