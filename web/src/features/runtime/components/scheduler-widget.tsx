import { useTranslation } from 'react-i18next';
import { formatCount } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import styles from './scheduler-widget.module.css';
import { Widget } from './widget';

export function SchedulerWidget() {
  const { t, i18n } = useTranslation('runtime');
  const health = useHealth();
  const scheduler = health?.scheduler;
  if (scheduler === undefined) return null;
  const count = (value: number): string => formatCount(value, i18n.language);
  const capacity = scheduler.capacity ?? health?.kv_slots ?? 1;
  const failures = scheduler.rejected + scheduler.timed_out + scheduler.cancelled;
  const hint = t('scheduler.failuresHint', {
    rejected: scheduler.rejected,
    timedOut: scheduler.timed_out,
    cancelled: scheduler.cancelled,
    failed: scheduler.failed,
  });
  return (
    <Widget title={t('scheduler.title')}>
      <dl className={styles.grid}>
        <Figure
          name="active"
          label={t('scheduler.active')}
          value={count(scheduler.active)}
          of={count(capacity)}
        />
        <Figure
          name="queued"
          label={t('scheduler.queued')}
          value={count(scheduler.queued)}
          of={scheduler.max_queue === undefined ? undefined : count(scheduler.max_queue)}
        />
        <Figure
          name="completed"
          label={t('scheduler.completed')}
          value={count(scheduler.completed)}
        />
        <Figure
          name="failures"
          label={t('scheduler.failures')}
          value={count(failures)}
          hint={hint}
        />
      </dl>
    </Widget>
  );
}

interface FigureProps {
  name: string;
  label: string;
  value: string;
  of?: string | undefined;
  hint?: string;
}

function Figure({ name, label, value, of, hint }: FigureProps) {
  return (
    <div title={hint} data-figure={name}>
      <dt>{label}</dt>
      <dd>
        {value}
        {of !== undefined && <small>/{of}</small>}
      </dd>
    </div>
  );
}
