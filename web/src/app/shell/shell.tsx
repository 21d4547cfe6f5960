// The frame around every page: navigation at the left, the page, the runtime at the right. On narrow
// screens both sides are drawers and the pages are a bar at the bottom.
import { lazy, Suspense, useState, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation } from 'react-router';
import { Drawer } from '@/components/drawer';
import { RuntimePanel } from '@/features/runtime/components/runtime-panel';
import { useMedia } from '@/lib/use-media';
import { Banners } from './banners';
import { BottomBar } from './bottom-bar';
import styles from './shell.module.css';
import { Sidebar } from './sidebar';
import { TopBar } from './top-bar';
import { useShell } from './shell-store';
import { Shortcuts } from './shortcuts';

const MiniBrain = lazy(() => import('@/features/brain/components/mini-brain'));

export function Shell({ children }: { children: ReactNode }) {
  const { t } = useTranslation(['common', 'runtime']);
  const { isSidebarOpen, isRuntimeOpen, toggleRuntime } = useShell();
  const [isMenuOpen, setIsMenuOpen] = useState(false);
  const [isPanelOpen, setIsPanelOpen] = useState(false);
  const isNarrow = useMedia('(max-width: 820px)');
  const isWide = useMedia('(min-width: 1180px)');
  const { pathname } = useLocation();
  const hasPanel = isWide && isRuntimeOpen;
  const isBrain = pathname.startsWith('/brain');
  const mini = !isNarrow && !isBrain && (
    <Suspense>
      <MiniBrain />
    </Suspense>
  );

  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#page">
        {t('app.skip')}
      </a>
      {!isNarrow && isSidebarOpen && (
        <div className={styles.side}>
          <Sidebar />
        </div>
      )}
      <div className={styles.middle}>
        <TopBar
          isRuntimeShown={isWide ? isRuntimeOpen : isPanelOpen}
          onMenu={isNarrow ? () => setIsMenuOpen(true) : undefined}
          onRuntime={() => (isWide ? toggleRuntime() : setIsPanelOpen(true))}
        />
        <Banners />
        <main id="page" tabIndex={-1} className={styles.main} key={pathname.split('/')[1] ?? ''}>
          {children}
        </main>
        {isNarrow && <BottomBar />}
      </div>
      {hasPanel && (
        <div className={styles.panel}>
          <RuntimePanel>{mini}</RuntimePanel>
        </div>
      )}
      <Drawer
        isOpen={isNarrow && isMenuOpen}
        side="left"
        label={t('shell.sidebar')}
        onClose={() => setIsMenuOpen(false)}
      >
        <Sidebar onOpen={() => setIsMenuOpen(false)} />
      </Drawer>
      <Drawer
        isOpen={!isWide && isPanelOpen}
        side="right"
        label={t('runtime:title')}
        onClose={() => setIsPanelOpen(false)}
      >
        <RuntimePanel>{mini}</RuntimePanel>
      </Drawer>
      <Shortcuts />
    </div>
  );
}
