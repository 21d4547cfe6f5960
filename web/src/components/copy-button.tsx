import { Check, Copy } from 'lucide-react';
import { useEffect, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { IconButton } from '@/components/button';
import { copyText } from '@/lib/clipboard';
import { notify } from '@/lib/notices';

interface CopyButtonProps {
  /** Called when pressed, so that long texts are not kept twice. */
  text: () => string;
  label?: string;
}

export function CopyButton({ text, label }: CopyButtonProps) {
  const { t } = useTranslation();
  const [isDone, setIsDone] = useState(false);
  useEffect(() => {
    if (!isDone) return;
    const timer = setTimeout(() => setIsDone(false), 1600);
    return () => clearTimeout(timer);
  }, [isDone]);

  async function copy(): Promise<void> {
    if (await copyText(text())) setIsDone(true);
    else notify({ kind: 'failed', text: t('action.copyFailed') });
  }

  return (
    <IconButton
      size="small"
      label={isDone ? t('action.copied') : (label ?? t('action.copy'))}
      icon={isDone ? <Check size={15} /> : <Copy size={15} />}
      onClick={() => void copy()}
    />
  );
}
