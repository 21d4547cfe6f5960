// How much of the context the conversation fills, with what is being written.
import { useTranslation } from 'react-i18next';
import { useModelEntry } from '@/lib/connection/connection-store';
import { formatCount } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import { usePath } from '../hooks/use-path';
import { estimateTokens } from '../model/token-estimate';
import { useAttachments, useDraft } from '../stores/drafts';
import styles from './context-meter.module.css';

const FULL = 2 * Math.PI * 7;

export function ContextMeter({ id }: { id: string }) {
  const { t, i18n } = useTranslation('chat');
  const health = useHealth();
  const entry = useModelEntry();
  const path = usePath(id);
  const draft = useDraft(id);
  const attachments = useAttachments(id);
  const size = health?.context_length ?? entry?.context_window ?? null;
  if (size === null) return null;

  const measured = path.findLastIndex((message) => message.figures.promptTokens !== undefined);
  const figures = path[measured]?.figures;
  const before = (figures?.promptTokens ?? 0) + (figures?.completionTokens ?? 0);
  const since = path.slice(measured + 1).map((message) => message.content);
  const written = [...since, draft, ...attachments.map((attachment) => attachment.text)];
  const used = before + estimateTokens(written.join('\n'));
  const share = Math.min(1, used / size);
  const text = t('context.used', {
    used: formatCount(used, i18n.language),
    size: formatCount(size, i18n.language),
  });
  return (
    <span
      className={styles.meter}
      data-level={share >= 1 ? 'over' : share > 0.8 ? 'high' : 'low'}
      role="img"
      aria-label={text}
      title={share >= 1 ? `${text}. ${t('context.over')}` : text}
    >
      <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
        <circle cx="9" cy="9" r="7" className={styles.track} />
        <circle
          cx="9"
          cy="9"
          r="7"
          className={styles.arc}
          strokeDasharray={`${share * FULL} ${FULL}`}
          transform="rotate(-90 9 9)"
        />
      </svg>
      {share > 0.8 && <span>{Math.round(share * 100)}%</span>}
    </span>
  );
}
