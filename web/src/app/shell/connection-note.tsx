import { useTranslation } from 'react-i18next';
import { Link } from 'react-router';
import { useConnection } from '@/lib/connection/connection-store';
import styles from './connection-note.module.css';

/** Whether there is a server, and which; leads to the settings. */
export function ConnectionNote() {
  const { t } = useTranslation();
  const status = useConnection((state) => state.status);
  const base = useConnection((state) => state.base);
  return (
    <Link to="/settings" className={styles.note} data-status={status}>
      <i aria-hidden="true" />
      <span role="status">{t(`connection.${status}`)}</span>
      <small>{base.replace(/^https?:\/\//, '').replace(/\/v1$/, '')}</small>
    </Link>
  );
}
