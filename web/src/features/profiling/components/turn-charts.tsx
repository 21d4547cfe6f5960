// The newest turns beside each other: how fast each was, and what its time was spent on.
import { useTranslation } from 'react-i18next';
import { PHASE_COLORS, PHASES } from '@/lib/telemetry/phases';
import { usePhaseWords } from '../hooks/use-phase-words';
import { percentile, type TurnFigures } from '../model/turn-figures';
import styles from './profiling-page.module.css';
import { TurnColumns } from './turn-columns';

const NUM_SHOWN = 40;
const LEAST_FOR_PERCENTILES = 5;

interface TurnChartsProps {
  rows: readonly TurnFigures[];
  selected: number | null;
  onSelect: (index: number | null) => void;
}

export function TurnCharts({ rows, selected, onSelect }: TurnChartsProps) {
  const { t } = useTranslation('profiling');
  const words = usePhaseWords();
  const shown = rows.slice(-NUM_SHOWN);
  const rates = shown.map(({ rate }) => rate);
  const sentences = shown.map(words.turn);
  const chosen = selected === null ? undefined : shown[selected];
  const lines =
    shown.length < LEAST_FOR_PERCENTILES
      ? []
      : ([0.5, 0.9] as const).map((share) => {
          const value = percentile(rates, share);
          return { name: `p${share * 100} ${words.rate(value)}`, value };
        });
  return (
    <div className={styles.charts}>
      <TurnColumns
        title={t('chart.rate')}
        columns={shown.map(({ rate }) => [{ name: 'rate', value: rate, color: '--accent' }])}
        words={sentences}
        peak={t('chart.peak', { value: words.rate(Math.max(...rates)) })}
        lines={lines}
        selected={selected}
        onSelect={onSelect}
      />
      <TurnColumns
        title={t('chart.phases')}
        columns={shown.map(({ phases }) =>
          PHASES.map((name) => ({ name, value: phases[name], color: PHASE_COLORS[name] })),
        )}
        words={sentences}
        peak={t('chart.peak', {
          value: words.seconds(Math.max(...shown.map(({ turn }) => turn.wall_s))),
        })}
        selected={selected}
        onSelect={onSelect}
      />
      <p className={styles.chosen} aria-live="off">
        {chosen === undefined ? t('chart.hint') : words.turn(chosen)}
      </p>
    </div>
  );
}
