// Settings of what is kept in the browser: export, import, delete.
import { useEffect, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { ConfirmDialog } from '@/components/confirm-dialog';
import { FieldGroup } from '@/components/field';
import { formatDecimal } from '@/lib/format';
import { notify } from '@/lib/notices';
import { deleteAllConversations, useChat } from '../stores/chat-store';
import { stopAllTurns } from '../stores/turn-runner';
import { exportAll, importFile } from '../stores/transfer';
import styles from './data-group.module.css';

export function DataGroup() {
  const { t, i18n } = useTranslation(['settings', 'common']);
  const picker = useRef<HTMLInputElement>(null);
  const [isAsking, setIsAsking] = useState(false);
  const used = useStorageUse();

  async function take(files: FileList | null): Promise<void> {
    for (const file of Array.from(files ?? [])) {
      try {
        notify({ kind: 'done', text: t('data.imported', { count: await importFile(file) }) });
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        notify({ kind: 'failed', text: t('data.importFailed', { name: file.name, reason }) });
      }
    }
  }

  return (
    <FieldGroup title={t('data.title')}>
      <p className={styles.text}>
        {t('data.text')}
        {used !== null && (
          <> {t('data.used', { size: `${formatDecimal(used / 1e6, 1, i18n.language)} MB` })}.</>
        )}
      </p>
      <div className={styles.tools}>
        <Button onClick={() => void exportAll()}>{t('data.export')}</Button>
        <Button onClick={() => picker.current?.click()}>{t('data.import')}</Button>
        <Button variant="danger" onClick={() => setIsAsking(true)}>
          {t('data.deleteAll')}
        </Button>
        <input
          ref={picker}
          type="file"
          accept="application/json,.json"
          multiple
          hidden
          aria-label={t('data.import')}
          onChange={(event) => {
            void take(event.target.files).then(() => {
              event.target.value = '';
            });
          }}
        />
      </div>
      <ConfirmDialog
        isOpen={isAsking}
        text={t('data.deleteAllConfirm')}
        action={t('data.deleteAll')}
        onConfirm={() => {
          stopAllTurns();
          void deleteAllConversations();
        }}
        onClose={() => setIsAsking(false)}
      />
    </FieldGroup>
  );
}

/** Bytes that this page keeps; null where the browser does not tell. */
function useStorageUse(): number | null {
  const [used, setUsed] = useState<number | null>(null);
  const count = useChat((state) => Object.keys(state.conversations).length);
  useEffect(() => {
    // missing on plain-http pages of other machines
    if (!('storage' in navigator)) return;
    void navigator.storage.estimate().then(({ usage }) => setUsed(usage ?? null));
  }, [count]);
  return used;
}
