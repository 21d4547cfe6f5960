// The messages of a conversation; only those in sight are in the page.
import { useVirtualizer } from '@tanstack/react-virtual';
import { ArrowDown } from 'lucide-react';
import { useLayoutEffect, useRef } from 'react';
import { useTranslation } from 'react-i18next';
import { usePath } from '../hooks/use-path';
import { useStickToEnd } from '../hooks/use-stick-to-end';
import { useChat } from '../stores/chat-store';
import { AnswerAnnouncer } from './answer-announcer';
import { AssistantMessage } from './assistant-message';
import styles from './message-list.module.css';
import { UserMessage } from './user-message';

const USUAL_HEIGHT = 160;

export function MessageList({ conversation }: { conversation: string }) {
  const { t } = useTranslation('chat');
  const path = usePath(conversation);
  const omittedTo = useChat((state) => state.conversations[conversation]?.omittedTo);
  const list = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- it is not memoized, as it needs
  const virtual = useVirtualizer({
    count: path.length,
    getScrollElement: () => list.current,
    estimateSize: () => USUAL_HEIGHT,
    getItemKey: (index) => path[index]?.id ?? index,
    overscan: 5,
    paddingStart: 24,
    paddingEnd: 24,
  });
  const last = path.at(-1);
  const lastIndex = path.length - 1;
  useLayoutEffect(() => {
    // Told by its observer, a row that grew would be placed a frame later: two for each step.
    const row = list.current?.querySelector(`[data-index="${lastIndex}"]`);
    if (row) virtual.resizeItem(lastIndex, Math.round(row.getBoundingClientRect().height));
  }, [last, lastIndex, virtual]);
  const height = virtual.getTotalSize();
  const asked = path.findLast((message) => message.role === 'user')?.id ?? '';
  const { isAtEnd, onScroll, jumpToEnd } = useStickToEnd(list, height, asked);

  return (
    <div className={styles.frame}>
      <div
        ref={list}
        className={styles.list}
        onScroll={onScroll}
        role="log"
        aria-live="off"
        aria-label={t('messages')}
        // Scrolled by keyboard.
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
        tabIndex={0}
      >
        <div className={styles.canvas} style={{ height }}>
          {virtual.getVirtualItems().map((item) => {
            const message = path[item.index];
            return message === undefined ? null : (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className={styles.row}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {item.index > 0 && path[item.index - 1]?.id === omittedTo && (
                  <p className={styles.omitted} role="note">
                    {t('omitted')}
                  </p>
                )}
                {message.role === 'user' ? (
                  <UserMessage message={message} />
                ) : (
                  <AssistantMessage message={message} isLast={item.index === path.length - 1} />
                )}
              </div>
            );
          })}
        </div>
      </div>
      {!isAtEnd && (
        <button type="button" className={styles.jump} onClick={jumpToEnd}>
          <ArrowDown size={15} />
          {t('jump')}
        </button>
      )}
      <AnswerAnnouncer message={last} />
    </div>
  );
}
