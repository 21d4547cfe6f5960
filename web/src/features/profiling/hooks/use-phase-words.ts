// The parts of a turn in words, and a turn as one sentence.
import { useTranslation } from 'react-i18next';
import { formatCount, formatRate, formatSeconds } from '@/lib/format';
import { PHASES, type Phase } from '@/lib/telemetry/phases';
import type { TurnFigures } from '../model/turn-figures';

export interface PhaseWords {
  phase: (name: Phase) => string;
  seconds: (value: number) => string;
  count: (value: number) => string;
  rate: (value: number) => string;
  turn: (row: TurnFigures) => string;
  parts: (phases: Record<Phase, number>) => string;
}

export function usePhaseWords(): PhaseWords {
  const { t, i18n } = useTranslation(['profiling', 'runtime']);
  const { language } = i18n;
  const seconds = (value: number): string => formatSeconds(value, language);
  const count = (value: number): string => formatCount(value, language);
  const rate = (value: number): string => formatRate(value, language);
  const phase = (name: Phase): string => t(`runtime:turn.${name}`);
  const parts = (phases: Record<Phase, number>): string =>
    PHASES.map((name) => `${phase(name)} ${seconds(phases[name])}`).join(', ');
  return {
    phase,
    seconds,
    count,
    rate,
    parts,
    turn: ({ number, turn, rate: speed, phases }) =>
      t('turn.words', {
        number: count(number),
        tokens: count(turn.completion_tokens),
        rate: rate(speed),
        wall: seconds(turn.wall_s),
        parts: parts(phases),
      }),
  };
}
