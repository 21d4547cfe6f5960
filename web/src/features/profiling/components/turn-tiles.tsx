// The newest turn in four figures.
import { useTranslation } from 'react-i18next';
import { formatDecimal } from '@/lib/format';
import { usePhaseWords } from '../hooks/use-phase-words';
import type { TurnFigures } from '../model/turn-figures';
import styles from './turn-tiles.module.css';

export function TurnTiles({ row }: { row: TurnFigures }) {
  const { t, i18n } = useTranslation('profiling');
  const words = usePhaseWords();
  const { turn, rate, perForward } = row;
  const tiles = [
    { name: 'rate', value: words.rate(rate), note: t('tile.rateNote') },
    {
      name: 'wall',
      value: words.seconds(turn.wall_s),
      note: t('tile.wallNote', {
        prompt: words.count(turn.prompt_tokens),
        completion: words.count(turn.completion_tokens),
      }),
    },
    {
      name: 'perForward',
      value: perForward === null ? '—' : formatDecimal(perForward, 2, i18n.language),
      note: t('tile.perForwardNote', { forwards: words.count(turn.forwards) }),
    },
    { name: 'disk', value: words.seconds(turn.expert_disk_s), note: t('tile.diskNote') },
  ] as const;
  return (
    <dl className={styles.tiles}>
      {tiles.map(({ name, value, note }) => (
        <div key={name} data-tile={name}>
          <dt>{t(`tile.${name}`)}</dt>
          <dd>
            {value}
            <small>{note}</small>
          </dd>
        </div>
      ))}
    </dl>
  );
}
