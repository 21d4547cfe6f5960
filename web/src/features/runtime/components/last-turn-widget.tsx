import { useTranslation } from 'react-i18next';
import { formatSeconds } from '@/lib/format';
import { useTurns } from '@/lib/telemetry/hooks';
import { PHASE_COLORS, PHASES, phasesOf } from '@/lib/telemetry/phases';
import { Legend, ShareBar, Widget } from './widget';

export function LastTurnWidget() {
  const { t, i18n } = useTranslation('runtime');
  const turn = useTurns().at(-1);
  if (turn === undefined) return null;
  const seconds = (value: number): string => formatSeconds(value, i18n.language);
  const phases = phasesOf(turn);
  const rows = PHASES.map((name) => ({
    name,
    color: PHASE_COLORS[name],
    label: t(`turn.${name}`),
    seconds: phases[name],
  }));
  return (
    <Widget title={t('turn.title')} aside={seconds(turn.wall_s)}>
      <ShareBar
        segments={rows.map(({ name, color, seconds: value }) => ({ name, color, value }))}
        label={rows.map((row) => `${row.label} ${seconds(row.seconds)}`).join(', ')}
      />
      <Legend
        rows={rows.map(({ name, color, label, seconds: value }) => ({
          name,
          color,
          label,
          value: seconds(value),
        }))}
      />
    </Widget>
  );
}
