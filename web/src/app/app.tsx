import { Suspense } from 'react';
import { useTranslation } from 'react-i18next';
import { BrowserRouter, Link, Route, Routes, useLocation } from 'react-router';
import { Toaster } from 'sonner';
import { ErrorBoundary } from '@/components/error-boundary';
import { useTheme } from '@/lib/theme';
import styles from './app.module.css';
import { PAGES } from './pages';
import { Shell } from './shell/shell';

export function App() {
  const theme = useTheme((state) => state.theme);
  return (
    <ErrorBoundary>
      <BrowserRouter>
        <Shell>
          <Pages />
        </Shell>
      </BrowserRouter>
      <Toaster
        theme={theme}
        position="top-center"
        toastOptions={{ className: styles.toast ?? '' }}
      />
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
