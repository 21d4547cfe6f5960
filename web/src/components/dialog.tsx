// A dialog in the middle, with a title and a button that closes it.
import type { ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { X } from 'lucide-react';
import { IconButton } from '@/components/button';
import { Modal } from '@/components/modal';
import styles from './dialog.module.css';

interface DialogProps {
  isOpen: boolean;
  title: string;
  onClose: () => void;
  children: ReactNode;
}

export function Dialog({ isOpen, title, onClose, children }: DialogProps) {
  const { t } = useTranslation();
  return (
    <Modal isOpen={isOpen} label={title} className={styles.dialog} onClose={onClose}>
      <div className={styles.inner}>
        <header className={styles.head}>
          <h2>{title}</h2>
          <IconButton label={t('action.close')} icon={<X size={17} />} onClick={onClose} />
        </header>
        {children}
      </div>
    </Modal>
  );
}
