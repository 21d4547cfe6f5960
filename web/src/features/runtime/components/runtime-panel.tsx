// The server at a glance, beside every page.
import { memo, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { useHealth, useServerState, useTelemetryAge, useWatch } from '@/lib/telemetry/hooks';
import { DraftsWidget } from './drafts-widget';
import { GpuWidget } from './gpu-widget';
import { HardwareWidget } from './hardware-widget';
import { LastTurnWidget } from './last-turn-widget';
import { MemoryWidget } from './memory-widget';
import styles from './runtime-panel.module.css';
import { SchedulerWidget } from './scheduler-widget';
import { SessionWidget } from './session-widget';
import { SlotsWidget } from './slots-widget';
import { TierWidget } from './tier-widget';
import { TrendWidget } from './trend-widget';
import { UpstreamWidget } from './upstream-widget';

// Each renders for its own figures, not because the age of them all changed.
const Widgets = memo(function Widgets() {
  return (
    <div className={styles.widgets}>
      <TierWidget />
      <SchedulerWidget />
      <UpstreamWidget />
      <LastTurnWidget />
      <TrendWidget />
      <MemoryWidget />
      <GpuWidget />
      <SlotsWidget />
      <DraftsWidget />
      <SessionWidget />
      <HardwareWidget />
    </div>
  );
});

/** `children` go above the figures. */
export function RuntimePanel({ children }: { children?: ReactNode }) {
  const { t } = useTranslation('runtime');
  const server = useServerState();
  const health = useHealth();
  const age = useTelemetryAge();
  useWatch('profile');
  return (
    <aside
      className={styles.panel}
      aria-label={t('title')}
      data-stale={age?.isStale ?? false}
      // Scrolled by keyboard.
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
    >
      <header className={styles.head}>
        <h2>{t('title')}</h2>
        <span className={styles.state} data-state={server} aria-live="polite">
          {t(`server.${server}`)}
        </span>
      </header>
      {children}
      {server === 'foreign' && <p className={styles.note}>{t('none')}</p>}
      {server === 'locked' && <p className={styles.note}>{t('lockedText')}</p>}
      {health?.scheduler === undefined ? (
        server !== 'foreign' && server !== 'locked' && <p className={styles.note}>{t('waiting')}</p>
      ) : (
        <Widgets />
      )}
      {age !== null && (
        <footer className={styles.age}>
          {age.isStale || age.seconds > 11 ? t('age', { seconds: age.seconds }) : t('live')}
          {health?.version !== undefined && ` · coli ${health.version ?? ''}`}
        </footer>
      )}
    </aside>
  );
}
