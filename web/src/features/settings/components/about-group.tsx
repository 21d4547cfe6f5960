import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { FieldGroup } from '@/components/field';
import { copyText } from '@/lib/clipboard';
import { useConnection } from '@/lib/connection/connection-store';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { notify } from '@/lib/notices';

/** What helps to explain a problem; never the key. */
function diagnostics(): string {
  const { base, model, status, error } = useConnection.getState();
  const { server, transport, health } = useTelemetry.getState();
  const lastError = error === null ? null : `${error.status} ${error.message} ${error.requestId}`;
  return JSON.stringify(
    { base, model, status, lastError, server, transport, health, agent: navigator.userAgent },
    null,
    2,
  );
}

export function AboutGroup() {
  const { t } = useTranslation(['settings', 'common']);
  const version = useTelemetry((state) => state.health?.version ?? null);

  async function copy(): Promise<void> {
    if (await copyText(diagnostics())) notify({ kind: 'done', text: t('common:action.copied') });
    else notify({ kind: 'failed', text: t('common:action.copyFailed') });
  }

  return (
    <FieldGroup title={t('about.title')}>
      {version !== null && <p>{t('about.version', { version })}</p>}
      <div>
        <Button onClick={() => void copy()}>{t('about.diagnostics')}</Button>
      </div>
    </FieldGroup>
  );
}
