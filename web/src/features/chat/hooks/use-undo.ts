import { useTranslation } from 'react-i18next';
import { toast } from 'sonner';

const OPEN_MS = 8000;

/** Offer to take back what was just done. */
export function useUndo(): (what: string, undo: () => void) => void {
  const { t } = useTranslation();
  return (what, undo) => {
    toast(what, { duration: OPEN_MS, action: { label: t('action.undo'), onClick: undo } });
  };
}
