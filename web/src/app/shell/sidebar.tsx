import { PanelLeftClose, Plus } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { Link, useLocation } from 'react-router';
import { IconButton } from '@/components/button';
import { ConversationList } from '@/features/chat/components/conversation-list';
import { pageAt } from '../page-loaders';
import { PAGES, type Page } from '../pages';
import { ConnectionNote } from './connection-note';
import { useShell } from './shell-store';
import styles from './sidebar.module.css';

export function Sidebar({ onOpen }: { onOpen?: () => void }) {
  const { t } = useTranslation(['common', 'chat']);
  const toggleSidebar = useShell((state) => state.toggleSidebar);
  return (
    <div className={styles.sidebar}>
      <header className={styles.head}>
        <Link to="/" className={styles.brand} onClick={onOpen}>
          <img src="/icon.svg" alt="" width="26" height="26" />
          <span>{t('app.name')}</span>
        </Link>
        {onOpen === undefined && (
          <IconButton
            label={t('shell.closeMenu')}
            icon={<PanelLeftClose size={17} />}
            onClick={toggleSidebar}
          />
        )}
      </header>
      <nav aria-label={t('nav.label')}>
        <ul className={styles.pages}>
          {PAGES.map((page) => (
            <PageLink key={page.id} page={page} onOpen={onOpen} />
          ))}
        </ul>
      </nav>
      <Link to="/" className={styles.new} onClick={onOpen}>
        <Plus size={16} />
        {t('chat:list.new')}
      </Link>
      <ConversationList {...(onOpen === undefined ? {} : { onOpen })} />
      <ConnectionNote />
    </div>
  );
}

interface PageLinkProps {
  page: Page;
  onOpen: (() => void) | undefined;
}

function PageLink({ page, onOpen }: PageLinkProps) {
  const { t } = useTranslation();
  const isHere = pageAt(useLocation().pathname) === page.id;
  const Icon = page.icon;
  return (
    <li>
      <Link
        to={page.paths[0]}
        className={styles.page}
        aria-current={isHere ? 'page' : undefined}
        onClick={onOpen}
      >
        <Icon size={17} />
        {t(`nav.${page.id}`)}
      </Link>
    </li>
  );
}
