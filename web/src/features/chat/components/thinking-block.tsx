// Reasoning: open while it arrives, closed once the answer begins, unless the reader decides.
import { Brain, ChevronRight } from 'lucide-react';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { formatCount, formatSeconds } from '@/lib/format';
import type { Message } from '../model/conversation';
import styles from './thinking-block.module.css';

export function ThinkingBlock({ message }: { message: Message }) {
  const { t, i18n } = useTranslation('chat');
  const isThinking = message.state === 'streaming' && message.content === '';
  const [choice, setChoice] = useState<boolean | null>(null);
  const isOpen = choice ?? isThinking;
  const { thinkingMs, reasoningTokens } = message.figures;
  return (
    <section className={styles.block}>
      <button
        type="button"
        className={styles.head}
        aria-expanded={isOpen}
        onClick={() => setChoice(!isOpen)}
      >
        <Brain size={15} />
        <span>
          {isThinking
            ? t('thinking.now')
            : thinkingMs === undefined
              ? t('thinking.done')
              : t('thinking.took', { time: formatSeconds(thinkingMs / 1000, i18n.language) })}
        </span>
        {reasoningTokens !== undefined && reasoningTokens > 0 && (
          <span className={styles.count}>
            {t('figures.tokens', {
              count: reasoningTokens,
              shown: formatCount(reasoningTokens, i18n.language),
            })}
          </span>
        )}
        <ChevronRight size={15} className={styles.chevron} data-open={isOpen} />
      </button>
      {isOpen && <div className={styles.text}>{message.reasoning}</div>}
    </section>
  );
}
