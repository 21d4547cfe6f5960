// Every turn of the window in numbers, newest first.
import { useTranslation } from 'react-i18next';
import { PHASES } from '@/lib/telemetry/phases';
import { usePhaseWords } from '../hooks/use-phase-words';
import type { TurnFigures } from '../model/turn-figures';
import styles from './turn-table.module.css';

export function TurnTable({ rows }: { rows: readonly TurnFigures[] }) {
  const { t } = useTranslation('profiling');
  const words = usePhaseWords();
  return (
    // Wide tables scroll by themselves, by keyboard too.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={styles.scroll} tabIndex={0} role="region" aria-label={t('table.title')}>
      <table className={styles.table}>
        <thead>
          <tr>
            {(['turn', 'tokens', 'rate', 'wall'] as const).map((name) => (
              <th key={name} scope="col">
                {t(`table.${name}`)}
              </th>
            ))}
            {PHASES.map((name) => (
              <th key={name} scope="col">
                {words.phase(name)}
              </th>
            ))}
            <th scope="col">{t('table.disk')}</th>
          </tr>
        </thead>
        <tbody>
          {[...rows].reverse().map(({ number, turn, rate, phases }) => (
            <tr key={number}>
              <th scope="row">{words.count(number)}</th>
              <td>{`${words.count(turn.prompt_tokens)}→${words.count(turn.completion_tokens)}`}</td>
              <td>{words.rate(rate)}</td>
              <td>{words.seconds(turn.wall_s)}</td>
              {PHASES.map((name) => (
                <td key={name}>{words.seconds(phases[name])}</td>
              ))}
              <td>{words.seconds(turn.expert_disk_s)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
