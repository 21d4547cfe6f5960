import { useTranslation } from 'react-i18next';
import { notify } from '@/lib/notices';

/** Offer to take back what was just done. */
export function useUndo(): (what: string, undo: () => void) => void {
  const { t } = useTranslation();
  return (what, undo) => {
    notify({ kind: 'plain', text: what, action: { label: t('action.undo'), run: undo } });
  };
}
