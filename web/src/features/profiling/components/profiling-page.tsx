// Where the time of each turn went: shares, charts, and a table that says the same in numbers.
import { Download } from 'lucide-react';
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { PageHead } from '@/components/page-head';
import { joinClasses } from '@/lib/join-classes';
import { saveFile } from '@/lib/save-file';
import { useServerState, useTelemetryAge, useTurns, useWatch } from '@/lib/telemetry/hooks';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { usePhaseWords } from '../hooks/use-phase-words';
import { asCsv, asJson, figuresOf, sumPhases, verdictOf } from '../model/turn-figures';
import { PhaseBar, PhaseLegend } from './phase-bar';
import styles from './profiling-page.module.css';
import { TurnCharts } from './turn-charts';
import { TurnTable } from './turn-table';
import { TurnTiles } from './turn-tiles';

export default function ProfilingPage() {
  const { t } = useTranslation('profiling');
  const turns = useTurns();
  const seq = useTelemetry((state) => state.turnSeq);
  const rows = useMemo(() => figuresOf(turns, seq), [turns, seq]);
  const words = usePhaseWords();
  const age = useTelemetryAge();
  const [selected, setSelected] = useState<number | null>(null);
  useWatch('profile');
  const last = rows.at(-1);
  if (last === undefined) return <Waiting />;
  const window = sumPhases(rows);
  return (
    <div className={styles.page}>
      <PageHead page="profiling">
        <p>{t(`verdict.${verdictOf(window)}`)}</p>
        {age?.isStale === true && (
          <p className={styles.stale} role="status">
            {t('stale', { seconds: age.seconds })}
          </p>
        )}
        <span className={styles.actions}>
          <Button
            icon={<Download size={15} />}
            onClick={() => saveFile('coli-turns.csv', asCsv(rows), 'text/csv')}
          >
            CSV
          </Button>
          <Button
            icon={<Download size={15} />}
            onClick={() => saveFile('coli-turns.json', asJson(rows), 'application/json')}
          >
            JSON
          </Button>
        </span>
      </PageHead>
      <TurnTiles row={last} />
      <section className={styles.shares} aria-label={t('shares')}>
        <PhaseBar
          title={t('lastTurn', { number: words.count(last.number) })}
          phases={last.phases}
        />
        {rows.length > 1 && (
          <PhaseBar title={t('window', { count: rows.length })} phases={window} />
        )}
        <PhaseLegend />
      </section>
      <TurnCharts rows={rows} selected={selected} onSelect={setSelected} />
      <TurnTable rows={rows} />
      <p className={styles.note}>{t('note')}</p>
    </div>
  );
}

function Waiting() {
  const { t } = useTranslation('profiling');
  const server = useServerState();
  const reason = server === 'foreign' || server === 'locked' ? server : 'waiting';
  return (
    <div className={joinClasses(styles.page, styles.bare)}>
      <PageHead page="profiling" />
      <p className={styles.empty} role="status">
        {t(`empty.${reason}`)}
      </p>
    </div>
  );
}
