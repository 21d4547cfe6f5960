// The figures of one answer in a line.
import { useTranslation } from 'react-i18next';
import { formatCount, formatDecimal, formatGigabytes, formatRate, formatWait } from '@/lib/format';
import type { TurnFigures } from '../model/conversation';
import styles from './figure-list.module.css';

export function FigureList({ figures }: { figures: TurnFigures }) {
  const { t, i18n } = useTranslation('chat');
  const locale = i18n.language;
  const { promptTokens, completionTokens, tokensPerSecond, ttftMs, queueWaitMs } = figures;
  const shown: { key: string; text: string; hint: string }[] = [];
  if (tokensPerSecond !== undefined) {
    const text = t('figures.rate', { rate: formatRate(tokensPerSecond, locale) });
    shown.push({ key: 'rate', text, hint: t('figures.rateHint') });
  }
  if (ttftMs !== undefined) {
    const text = t('figures.ttft', { time: formatDecimal(ttftMs / 1000, 1, locale) });
    shown.push({ key: 'ttft', text, hint: t('figures.ttftHint') });
  }
  if (completionTokens !== undefined) {
    const completion = formatCount(completionTokens, locale);
    const text =
      promptTokens === undefined
        ? t('figures.tokens', { count: completionTokens, shown: completion })
        : `${formatCount(promptTokens, locale)}→${completion}`;
    const cached = formatCount(figures.cachedTokens ?? 0, locale);
    shown.push({ key: 'tokens', text, hint: t('figures.tokensHint', { cached }) });
  }
  if (queueWaitMs !== undefined && queueWaitMs > 0) {
    const text = t('figures.queue', { time: formatWait(queueWaitMs, locale) });
    shown.push({ key: 'queue', text, hint: t('figures.queueHint') });
  }
  if (figures.slot !== undefined) {
    const text = t('figures.slot', { slot: figures.slot + 1 });
    shown.push({ key: 'slot', text, hint: t('figures.slotHint') });
  }
  if (figures.hitPercent !== undefined) {
    const text = t('figures.hits', { percent: formatDecimal(figures.hitPercent, 0, locale) });
    shown.push({ key: 'hits', text, hint: t('figures.hitsHint') });
  }
  if (figures.rssGb !== undefined) {
    const text = formatGigabytes(figures.rssGb, locale);
    shown.push({ key: 'rss', text, hint: t('figures.rssHint') });
  }
  if (shown.length === 0) return null;
  return (
    <ul className={styles.list} aria-label={t('figures.label')}>
      {shown.map(({ key, text, hint }) => (
        <li key={key} data-figure={key} title={hint}>
          {text}
        </li>
      ))}
    </ul>
  );
}
