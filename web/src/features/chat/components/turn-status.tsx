// What the running turn is doing, above the composer.
import { useTranslation } from 'react-i18next';
import { formatCount, formatDecimal, formatRate, formatSeconds, formatWait } from '@/lib/format';
import { useNow } from '@/lib/use-now';
import { useProgress } from '@/lib/telemetry/hooks';
import { useChat, type LiveTurn } from '../stores/chat-store';
import { decodeRate, tokenCount } from '../model/turn';
import styles from './turn-status.module.css';

const INTERVAL_MS = 250;

export function TurnStatus({ id }: { id: string }) {
  const live = useChat((state) => state.live[id]);
  return live === undefined ? null : <Running live={live} />;
}

function Running({ live }: { live: LiveTurn }) {
  const { turn, retry } = live;
  return (
    <div className={styles.status} role="status" aria-live="off">
      <span className={styles.dot} data-waiting={turn.pieces === 0} aria-hidden="true" />
      {retry !== null ? (
        <Retrying retry={retry} />
      ) : turn.pieces === 0 ? (
        <Prefill live={live} />
      ) : (
        <Counting live={live} />
      )}
    </div>
  );
}

function Retrying({ retry }: { retry: NonNullable<LiveTurn['retry']> }) {
  const now = useNow(INTERVAL_MS);
  const { t } = useTranslation('chat');
  const seconds = Math.max(0, Math.ceil((retry.at - now) / 1000));
  return (
    <span role="alert">
      {sentence(retry.reason)} {t('status.retry', { count: seconds, attempt: retry.attempt })}
    </span>
  );
}

/** The server's words, ended: others follow. */
function sentence(words: string): string {
  return /[\p{L}\p{N}]$/u.test(words) ? `${words}.` : words;
}

/** Before the first token: where the request is, for how long, and how far the prompt is read. */
function Prefill({ live: { turn } }: { live: LiveTurn }) {
  const now = useNow(INTERVAL_MS);
  const { t, i18n } = useTranslation('chat');
  const locale = i18n.language;
  const queued = useProgress()?.queued ?? 0;
  const elapsed = formatSeconds(Math.max(0, now - turn.startedAt) / 1000, locale);
  const { prefill } = turn;
  if (turn.phase === 'waiting') {
    return (
      <span>
        {queued > 0
          ? t('status.queued', { count: queued, elapsed })
          : t('status.sent', { elapsed })}
      </span>
    );
  }
  if (prefill === null || prefill.done >= prefill.total) {
    return <span>{t('status.reading', { elapsed })}</span>;
  }
  return (
    <>
      <span>
        {t('status.prefill', {
          elapsed,
          done: formatCount(prefill.done, locale),
          total: formatCount(prefill.total, locale),
        })}
      </span>
      <progress className={styles.bar} value={prefill.done} max={prefill.total} />
    </>
  );
}

function Counting({ live: { turn } }: { live: LiveTurn }) {
  const { t, i18n } = useTranslation('chat');
  const locale = i18n.language;
  const rate = decodeRate(turn);
  const tokens = tokenCount(turn);
  return (
    <ul className={styles.figures}>
      <li className={styles.count}>
        {t('figures.tokens', { count: tokens, shown: formatCount(tokens, locale) })}
      </li>
      {rate !== null && (
        <li className={styles.rate}>{t('figures.rate', { rate: formatRate(rate, locale) })}</li>
      )}
      {turn.firstAt !== null && (
        <li>
          {t('figures.ttft', {
            time: formatDecimal((turn.firstAt - turn.startedAt) / 1000, 1, locale),
          })}
        </li>
      )}
      {turn.queueWaitMs !== null && turn.queueWaitMs > 0 && (
        <li>{t('figures.queue', { time: formatWait(turn.queueWaitMs, locale) })}</li>
      )}
    </ul>
  );
}
