// The whole model at a glance: every expert, where it is, how often it is used, and when.
import { useTranslation } from 'react-i18next';
import { PageHead } from '@/components/page-head';
import { formatCount } from '@/lib/format';
import { joinClasses } from '@/lib/join-classes';
import { useHealth, useServerState, useTelemetryAge, useWatch } from '@/lib/telemetry/hooks';
import { useExpertMap } from '../hooks/use-expert-map';
import { BrainLegend } from './brain-legend';
import styles from './brain-page.module.css';
import { Cortex } from './cortex';
import { LayerTable } from './layer-table';

export default function BrainPage() {
  const { t, i18n } = useTranslation('brain');
  const { map, isUnreadable } = useExpertMap();
  const age = useTelemetryAge();
  useWatch('experts');
  const count = (value: number): string => formatCount(value, i18n.language);
  const isStale = isUnreadable || (age?.isStale ?? false);
  return (
    <div className={styles.page}>
      <PageHead page="brain">
        {map !== null && (
          <p>
            {t('shape', {
              layers: count(map.rows),
              experts: count(map.cols),
              total: count(map.cells.length),
            })}
          </p>
        )}
        {map !== null && isStale && (
          <p className={styles.stale} role="status">
            {isUnreadable ? t('unreadable') : t('stale', { seconds: age?.seconds ?? 0 })}
          </p>
        )}
      </PageHead>
      {map === null ? (
        <Waiting isUnreadable={isUnreadable} />
      ) : (
        <>
          <section
            className={joinClasses(styles.stage, 'always-dark')}
            data-stale={isStale}
            aria-label={t('stage')}
          >
            <Cortex map={map} />
            <BrainLegend map={map} />
          </section>
          <LayerTable map={map} />
        </>
      )}
    </div>
  );
}

function Waiting({ isUnreadable }: { isUnreadable: boolean }) {
  const { t } = useTranslation('brain');
  const reason = useReason();
  return (
    <p className={styles.empty} role="status">
      {isUnreadable ? t('unreadable') : t(`empty.${reason}`)}
    </p>
  );
}

/** Why there is no map. */
function useReason(): 'foreign' | 'locked' | 'behind' | 'waiting' {
  const server = useServerState();
  const health = useHealth();
  if (server === 'foreign' || server === 'locked') return server;
  return health?.upstream === undefined ? 'waiting' : 'behind';
}
