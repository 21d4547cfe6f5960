import { lazy, Suspense } from 'react';
import { useTranslation } from 'react-i18next';
import { BrowserRouter, Link, Route, Routes, useLocation } from 'react-router';
import { ErrorBoundary } from '@/components/error-boundary';
import { useNotices } from '@/lib/notices';
import styles from './app.module.css';
import { pageAt } from './page-loaders';
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
  const { pathname } = useLocation();
  return (
    <ErrorBoundary resetKey={pathname}>
      <Suspense fallback={<Coming />}>
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

/** A page whose part of the build is on its way: what the frame shows of it, so that nothing moves. */
function Coming() {
  const { t } = useTranslation(['common', 'frame']);
  const { pathname } = useLocation();
  const page = pageAt(pathname);
  return (
    <div className="boot-page" data-page={page} aria-busy="true">
      {page !== null && !pathname.startsWith('/c/') && (
        <div>
          <h1>{t(`frame:${page}.title`)}</h1>
          <p>{t(`frame:${page}.intro`)}</p>
        </div>
      )}
      <p className="visually-hidden" role="status">
        {t('shell.loading')}
      </p>
    </div>
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
