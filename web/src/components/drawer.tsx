// A panel over the page, from a side.
import type { ReactNode } from 'react';
import { Modal } from '@/components/modal';
import styles from './drawer.module.css';

interface DrawerProps {
  isOpen: boolean;
  side: 'left' | 'right';
  label: string;
  onClose: () => void;
  children: ReactNode;
}

export function Drawer({ isOpen, side, label, onClose, children }: DrawerProps) {
  return (
    <Modal isOpen={isOpen} label={label} className={styles.drawer} side={side} onClose={onClose}>
      <div className={styles.inner}>{children}</div>
    </Modal>
  );
}
