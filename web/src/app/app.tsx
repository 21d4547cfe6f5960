import { lazy, Suspense } from 'react';
import { useTranslation } from 'react-i18next';
import { BrowserRouter, Link, Route, Routes, useLocation } from 'react-router';
import { ErrorBoundary } from '@/components/error-boundary';
import { useNotices } from '@/lib/notices';
import styles from './app.module.css';
import { PAGES } from './pages';
import { Shell } from './shell/shell';

const Notices = lazy(() => import('@/components/notices'));

export function App() {
  const hasNotices = useNotices((state) => state.isUsed);
  return (
    <ErrorBoundary>
      <BrowserRouter>
        <Shell>
          <Pages />
        </Shell>
      </BrowserRouter>
      {hasNotices && (
        <Suspense>
          <Notices />
        </Suspense>
      )}
    </ErrorBoundary>
  );
}

function Pages() {
  const { t } = useTranslation();
  const { pathname } = useLocation();
  return (
    <ErrorBoundary resetKey={pathname}>
      <Suspense fallback={<p className={styles.loading}>{t('shell.loading')}</p>}>
        <Routes>
          {PAGES.flatMap(({ paths, Component }) =>
            paths.map((path) => <Route key={path} path={path} element={<Component />} />),
          )}
          <Route path="*" element={<NotFound />} />
        </Routes>
      </Suspense>
    </ErrorBoundary>
  );
}

function NotFound() {
  const { t } = useTranslation();
  return (
    <div className={styles.notFound}>
      <h1>{t('shell.notFound')}</h1>
      <Link to="/">{t('shell.home')}</Link>
    </div>
  );
}
