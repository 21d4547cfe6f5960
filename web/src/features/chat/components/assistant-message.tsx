// An answer: thinking, text, tool calls, how it ended, and its figures.
import { lazy, memo, Suspense } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { isEmptyAnswer, type Message } from '../model/conversation';
import { useSampling } from '../model/sampling';
import { continueAnswer, regenerate } from '../stores/chat-actions';
import { useChat } from '../stores/chat-store';
import styles from './assistant-message.module.css';
import { MessageFooter } from './message-footer';
import { TintLegend } from './tint-legend';
import { ThinkingBlock } from './thinking-block';
import { ToolCallCard } from './tool-call-card';

const TokenText = lazy(() => import('./token-text'));
const Markdown = lazy(() => import('@/components/markdown/markdown'));

interface AssistantMessageProps {
  message: Message;
  isLast: boolean;
}

export const AssistantMessage = memo(function AssistantMessage({
  message,
  isLast,
}: AssistantMessageProps) {
  const { t } = useTranslation('chat');
  const isStreaming = message.state === 'streaming';
  const { chances = [] } = message;
  const isTinted = useSampling((state) => state.sampling.isTinted) && chances.length > 0;
  return (
    <article className={styles.message} aria-label={t('assistant')} aria-busy={isStreaming}>
      {message.reasoning !== '' && <ThinkingBlock message={message} />}
      {isStreaming && isEmptyAnswer(message) && <Waiting />}
      {message.content !== '' && (
        <Suspense fallback={<div className={styles.plain}>{message.content}</div>}>
          {isTinted ? (
            <TokenText pieces={chances} />
          ) : (
            <div className={isStreaming ? styles.growing : undefined}>
              <Markdown text={message.content} isGrowing={isStreaming} />
            </div>
          )}
        </Suspense>
      )}
      {message.toolCalls.map((call, index) => (
        <ToolCallCard key={index} call={call} isStreaming={isStreaming} />
      ))}
      {isTinted && isLast && <TintLegend />}
      <Ending message={message} isLast={isLast} />
      {!isStreaming && <MessageFooter message={message} isLast={isLast} />}
    </article>
  );
});

function Waiting() {
  return (
    <span className={styles.waiting} aria-hidden="true">
      <i />
      <i />
      <i />
    </span>
  );
}

/** Why an answer is not a complete one, and what can be done. */
function Ending({ message, isLast }: AssistantMessageProps) {
  const { t } = useTranslation('chat');
  const isBusy = useChat((state) => state.live[message.conversation] !== undefined);
  const reason = endingOf(message);
  if (reason === null) return null;
  return (
    <div className={styles.ending} data-kind={reason} role="note">
      <span>
        {t(`ending.${reason}`)}
        {message.error !== '' && <> {message.error}</>}
      </span>
      {isLast && reason !== 'malformed' && (
        <span className={styles.endingTools}>
          <Button disabled={isBusy} onClick={() => continueAnswer(message)}>
            {t('action.continue')}
          </Button>
          {reason === 'cut' && (
            <Button disabled={isBusy} variant="quiet" onClick={() => regenerate(message)}>
              {t('action.retry')}
            </Button>
          )}
        </span>
      )}
    </div>
  );
}

export function endingOf(message: Message): 'length' | 'cut' | 'stopped' | 'malformed' | null {
  if (message.state === 'cut') return 'cut';
  if (message.state === 'stopped') return 'stopped';
  if (message.state === 'streaming') return null;
  if (message.finish === 'length') return 'length';
  return message.hasMalformed ? 'malformed' : null;
}
