// What a conversation without messages shows: a greeting and ways to begin.
import { useTranslation } from 'react-i18next';
import { useConnection } from '@/lib/connection/connection-store';
import { useServerState } from '@/lib/telemetry/hooks';
import { NEW } from '../stores/chat-store';
import { setDraft } from '../stores/drafts';
import styles from './chat-empty.module.css';

const STARTERS = ['explain', 'write', 'code'] as const;

export function ChatEmpty({ id }: { id: string }) {
  const { t } = useTranslation(['chat', 'frame']);
  const model = useConnection((state) => state.model);
  const status = useConnection((state) => state.status);
  const isConnected = status === 'connected';
  const server = useServerState();
  const isReady = server === 'ready' || server === 'foreign' || server === 'unknown';
  return (
    <div className={styles.empty}>
      <div className={styles.inner}>
        <h2>{t('frame:chat.title')}</h2>
        <p className={styles.intro}>{t('frame:chat.intro')}</p>
        <p className={styles.state} data-ready={isConnected && isReady}>
          {isConnected && t(isReady ? 'empty.ready' : 'empty.busy', { model })}
          {status !== 'connected' && status !== 'probing' && t('empty.none')}
        </p>
        <ul className={styles.starters}>
          {STARTERS.map((starter) => (
            <li key={starter}>
              <button
                type="button"
                className={styles.starter}
                onClick={() => {
                  setDraft(id, t(`empty.${starter}.prompt`));
                  document.getElementById(`composer-${id === NEW ? NEW : id}`)?.focus();
                }}
              >
                <strong>{t(`empty.${starter}.title`)}</strong>
                <span>{t(`empty.${starter}.prompt`)}</span>
              </button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
