// What can be done with an answer, and what was measured of it.
import { RotateCcw } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { IconButton } from '@/components/button';
import { CopyButton } from '@/components/copy-button';
import type { Message } from '../model/conversation';
import { regenerate } from '../stores/chat-actions';
import { useChat } from '../stores/chat-store';
import { BranchSwitch } from './branch-switch';
import { FigureList } from './figure-list';
import styles from './message-footer.module.css';

export function MessageFooter({ message, isLast }: { message: Message; isLast: boolean }) {
  const { t } = useTranslation('chat');
  const isBusy = useChat((state) => state.live[message.conversation] !== undefined);
  return (
    <footer className={styles.footer} data-last={isLast}>
      <span className={styles.tools}>
        <BranchSwitch message={message} />
        <CopyButton text={() => message.content} label={t('action.copyMessage')} />
        <IconButton
          size="small"
          label={t('action.regenerate')}
          icon={<RotateCcw size={14} />}
          disabled={isBusy}
          onClick={() => regenerate(message)}
        />
      </span>
      <FigureList figures={message.figures} />
    </footer>
  );
}
