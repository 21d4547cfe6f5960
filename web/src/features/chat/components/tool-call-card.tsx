// A call the model wants to make. The page shows it and runs nothing.
import { Wrench } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { CopyButton } from '@/components/copy-button';
import type { ToolCall } from '../model/conversation';
import styles from './tool-call-card.module.css';

/** JSON with line breaks; what is no JSON yet as it is. */
export function prettyArguments(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function ToolCallCard({ call, isStreaming }: { call: ToolCall; isStreaming: boolean }) {
  const { t } = useTranslation('chat');
  const shown = isStreaming ? call.arguments : prettyArguments(call.arguments);
  return (
    <section className={styles.card} aria-label={t('tool.label', { name: call.name })}>
      <header className={styles.head}>
        <Wrench size={15} />
        <code>{call.name}</code>
        <span>{isStreaming ? t('tool.writing') : t('tool.notRun')}</span>
        <CopyButton text={() => shown} />
      </header>
      <pre className={styles.arguments}>{shown}</pre>
    </section>
  );
}
