// A request that brought no answer: the server's words and what can be done.
import { X } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { useNavigate } from 'react-router';
import { Button, IconButton } from '@/components/button';
import { copyText } from '@/lib/clipboard';
import { useConnection } from '@/lib/connection/connection-store';
import { usePath } from '../hooks/use-path';
import { failureAdvice } from '../model/failure-advice';
import { sentFrom } from '../model/omission';
import { omitOldestAndSend } from '../stores/chat-actions';
import { NEW, useChat, type Failure } from '../stores/chat-store';
import { setAttachments, setDraft } from '../stores/drafts';
import { setFailure } from '../stores/turn-runner';
import styles from './failure-card.module.css';

export function FailureCard({ id }: { id: string }) {
  const failure = useChat((state) => state.failures[id]);
  return failure === undefined ? null : <Card id={id} failure={failure} />;
}

function Card({ id, failure: { error, hasDraft } }: { id: string; failure: Failure }) {
  const { t } = useTranslation(['chat', 'common']);
  const navigate = useNavigate();
  const advice = failureAdvice(error);
  const path = usePath(id);
  const omittedTo = useChat((state) => state.conversations[id]?.omittedTo);
  const hasOlder = sentFrom(path, omittedTo) < path.length;

  function startNew(): void {
    const { conversations, attachments } = useChat.getState();
    setDraft(NEW, conversations[id]?.draft ?? '');
    setAttachments(NEW, attachments[id] ?? []);
    setFailure(id, null);
    void navigate('/');
  }

  function refresh(): void {
    setFailure(id, null);
    void useConnection.getState().probe();
  }

  return (
    <div className={styles.card} role="alert">
      <div className={styles.text}>
        <strong>{t(`failure.${advice}`)}</strong>
        {error.message !== '' && <span>{error.message}</span>}
        {error.param !== '' && <span>{t('failure.param', { param: error.param })}</span>}
        {error.requestId !== '' && (
          <code>{t('common:error.request', { id: error.requestId })}</code>
        )}
        <span className={styles.tools}>
          {advice === 'context' && hasDraft && hasOlder && (
            <Button onClick={() => omitOldestAndSend(id)}>{t('failure.omitOldest')}</Button>
          )}
          {advice === 'context' && <Button onClick={startNew}>{t('failure.newChat')}</Button>}
          {advice === 'key' && (
            <Button onClick={() => void navigate('/settings')}>{t('failure.enterKey')}</Button>
          )}
          {advice === 'model' && <Button onClick={refresh}>{t('failure.refreshModels')}</Button>}
          <Button
            variant="quiet"
            onClick={() =>
              void copyText(`${error.status} ${error.code} ${error.message} ${error.requestId}`)
            }
          >
            {t('common:error.copy')}
          </Button>
        </span>
      </div>
      <IconButton
        size="small"
        label={t('common:action.close')}
        icon={<X size={15} />}
        onClick={() => setFailure(id, null)}
      />
    </div>
  );
}
