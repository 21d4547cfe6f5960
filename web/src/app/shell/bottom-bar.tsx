import { useTranslation } from 'react-i18next';
import { Link, useLocation } from 'react-router';
import { pageAt } from '../page-loaders';
import { PAGES } from '../pages';
import styles from './bottom-bar.module.css';

/** The pages, within reach of a thumb. */
export function BottomBar() {
  const { t } = useTranslation();
  const here = pageAt(useLocation().pathname);
  return (
    <nav className={styles.bar} aria-label={t('nav.label')}>
      {PAGES.map(({ id, paths, icon: Icon }) => (
        <Link
          key={id}
          to={paths[0]}
          className={styles.link}
          aria-current={id === here ? 'page' : undefined}
        >
          <Icon size={19} />
          <span>{t(`nav.${id}`)}</span>
        </Link>
      ))}
    </nav>
  );
}
