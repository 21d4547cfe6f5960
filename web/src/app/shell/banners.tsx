// What stands between the reader and an answer: no server, no key, no engine.
import { useEffect, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'react-router';
import { Button } from '@/components/button';
import { isEngineServed } from '@/lib/endpoint';
import { useConnection } from '@/lib/connection/connection-store';
import { useHealth, useServerState } from '@/lib/telemetry/hooks';
import { telemetryFeed } from '@/lib/telemetry/telemetry-feed';
import styles from './banners.module.css';

export function Banners() {
  const { t } = useTranslation();
  const { status, base, probe } = useConnection();
  const server = useServerState();
  const health = useHealth();
  const isOffline = useOffline();

  if (status === 'locked') {
    return (
      <Banner kind="warn" text={t('banner.locked')}>
        <Link to="/settings">{t('banner.openSettings')}</Link>
      </Banner>
    );
  }
  if (status === 'unreachable' || server === 'unreachable') {
    const isRemote = !base.startsWith(window.location.origin);
    // The server's content policy lets its page talk to itself alone.
    const isBlocked = isRemote && isEngineServed(window.location);
    const reason = isBlocked ? 'blocked' : isRemote ? 'unreachableRemote' : 'unreachable';
    const text = t(`banner.${reason}`, { base });
    const retry = (): void => {
      if (status === 'unreachable') void probe();
      else telemetryFeed.refresh();
    };
    return (
      <Banner kind="danger" text={isOffline ? `${t('banner.offline')} ${text}` : text}>
        <Button variant="quiet" onClick={retry}>
          {t('banner.retry')}
        </Button>
      </Banner>
    );
  }
  if (status === 'loading' || server === 'loading') {
    const load = health?.load;
    return (
      <Banner kind="warn" text={t('banner.loading')}>
        {load !== undefined && <progress value={load.done} max={load.total} />}
      </Banner>
    );
  }
  if (server === 'restarting') {
    const reason = health?.engine?.last_end ?? '';
    const text = reason === '' ? t('banner.restarting') : t('banner.restartingAfter', { reason });
    return <Banner kind="warn" text={text} />;
  }
  if (server === 'down') return <Banner kind="danger" text={t('banner.down')} />;
  return null;
}

interface BannerProps {
  kind: 'warn' | 'danger';
  text: string;
  children?: React.ReactNode;
}

function Banner({ kind, text, children }: BannerProps) {
  return (
    <div className={styles.banner} data-kind={kind} role="alert">
      <span>{text}</span>
      {children}
    </div>
  );
}

function useOffline(): boolean {
  const [isOffline, setIsOffline] = useState(!navigator.onLine);
  useEffect(() => {
    const follow = (): void => setIsOffline(!navigator.onLine);
    window.addEventListener('online', follow);
    window.addEventListener('offline', follow);
    return () => {
      window.removeEventListener('online', follow);
      window.removeEventListener('offline', follow);
    };
  }, []);
  return isOffline;
}
