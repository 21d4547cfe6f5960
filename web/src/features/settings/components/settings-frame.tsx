// The page around the groups of settings.
import type { ReactNode } from 'react';
import { PageHead } from '@/components/page-head';
import styles from './settings-frame.module.css';

export function SettingsFrame({ children }: { children: ReactNode }) {
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <PageHead page="settings" />
        {children}
      </div>
    </div>
  );
}
