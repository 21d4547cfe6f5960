// The head of a page: its name and what it is about, as the frame shows them before the page runs.
import { useEffect, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import styles from './page-head.module.css';

interface PageHeadProps {
  page: 'brain' | 'atlas' | 'profiling' | 'settings';
  /** What comes later, in a line below; it moves nothing above it. */
  children?: ReactNode;
}

export function PageHead({ page, children }: PageHeadProps) {
  const { t } = useTranslation('frame');
  const title = t(`${page}.title`);
  useEffect(() => {
    document.title = `${title} · coli`;
  }, [title]);
  return (
    <header className={styles.head}>
      <h1>{title}</h1>
      <p className={styles.intro}>{t(`${page}.intro`)}</p>
      {children !== undefined && <div className={styles.more}>{children}</div>}
    </header>
  );
}
