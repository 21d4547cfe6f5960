// ‹ 2/3 ›: the alternatives at a message's place.
import { ChevronLeft, ChevronRight } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { IconButton } from '@/components/button';
import { siblingsOf, type MessageTable } from '../model/branches';
import type { Message } from '../model/conversation';
import { showBranch, useChat } from '../stores/chat-store';
import styles from './branch-switch.module.css';

// One for all: a new one each time would look like a change each time, without end.
const NONE: MessageTable = {};

export function BranchSwitch({ message }: { message: Message }) {
  const { t } = useTranslation('chat');
  const table = useChat((state) => state.messages[message.conversation] ?? NONE);
  const isBusy = useChat((state) => state.live[message.conversation] !== undefined);
  const siblings = siblingsOf(table, message);
  const place = siblings.findIndex((sibling) => sibling.id === message.id);
  if (siblings.length < 2) return null;

  function go(step: number): void {
    const target = siblings[place + step];
    if (target !== undefined) showBranch(message.conversation, target.id);
  }

  return (
    <span className={styles.switch} role="group" aria-label={t('branch.label')}>
      <IconButton
        size="small"
        label={t('branch.previous')}
        icon={<ChevronLeft size={15} />}
        disabled={isBusy || place === 0}
        onClick={() => go(-1)}
      />
      <span className="numeric">
        {place + 1}/{siblings.length}
      </span>
      <IconButton
        size="small"
        label={t('branch.next')}
        icon={<ChevronRight size={15} />}
        disabled={isBusy || place === siblings.length - 1}
        onClick={() => go(1)}
      />
    </span>
  );
}
