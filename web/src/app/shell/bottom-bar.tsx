import { useTranslation } from 'react-i18next';
import { NavLink } from 'react-router';
import { PAGES } from '../pages';
import styles from './bottom-bar.module.css';

/** The pages, within reach of a thumb. */
export function BottomBar() {
  const { t } = useTranslation();
  return (
    <nav className={styles.bar} aria-label={t('nav.label')}>
      {PAGES.map(({ id, paths, icon: Icon }) => (
        <NavLink key={id} to={paths[0]} end={paths[0] !== '/'} className={styles.link ?? ''}>
          <Icon size={19} />
          <span>{t(`nav.${id}`)}</span>
        </NavLink>
      ))}
    </nav>
  );
}
