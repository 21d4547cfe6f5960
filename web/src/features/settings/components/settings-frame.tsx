// The page around the groups of settings.
import { useEffect, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import styles from './settings-frame.module.css';

export function SettingsFrame({ children }: { children: ReactNode }) {
  const { t } = useTranslation('settings');
  useEffect(() => {
    document.title = `${t('title')} · coli`;
  }, [t]);
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <h1>{t('title')}</h1>
        {children}
      </div>
    </div>
  );
}
