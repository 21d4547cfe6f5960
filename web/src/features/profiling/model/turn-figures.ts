// What the turns of a window say, as numbers and as files. Pure.
import type { Turn } from '@/lib/schemas';
import { PHASES, phasesOf, tokensPerForward, turnRate, type Phase } from '@/lib/telemetry/phases';

export interface TurnFigures {
  /** Counted by the server since its start, from 1. */
  number: number;
  turn: Turn;
  phases: Record<Phase, number>;
  /** Tokens per second over the whole turn. */
  rate: number;
  perForward: number | null;
}

/** The turns of a window with their numbers; `seq` is the number of the last one. */
export function figuresOf(turns: readonly Turn[], seq: number): TurnFigures[] {
  return turns.map((turn, index) => ({
    number: Math.max(seq, turns.length) - turns.length + index + 1,
    turn,
    phases: phasesOf(turn),
    rate: turnRate(turn),
    perForward: tokensPerForward(turn),
  }));
}

/** Seconds of each part over all turns. */
export function sumPhases(rows: readonly TurnFigures[]): Record<Phase, number> {
  const sums = { wait: 0, matmul: 0, attention: 0, head: 0, other: 0 };
  for (const { phases } of rows) for (const name of PHASES) sums[name] += phases[name];
  return sums;
}

/** The value that a share of all values is not above; 0 of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

export type Verdict = Phase | 'balanced' | 'unknown';
const BOUND = 0.45; // of the time, from which on one part is what to work on

/** What most of the time went to; `balanced` if nothing stands out. */
export function verdictOf(phases: Record<Phase, number>): Verdict {
  const total = PHASES.reduce((sum, name) => sum + phases[name], 0);
  if (total <= 0) return 'unknown';
  return PHASES.find((name) => phases[name] / total >= BOUND) ?? 'balanced';
}

const COLUMNS: readonly (readonly [string, (row: TurnFigures) => number | string])[] = [
  ['turn', ({ number }) => number],
  ['wall_s', ({ turn }) => turn.wall_s],
  ['prompt_tokens', ({ turn }) => turn.prompt_tokens],
  ['completion_tokens', ({ turn }) => turn.completion_tokens],
  ['tokens_per_second', ({ rate }) => rate],
  ['forwards', ({ turn }) => turn.forwards],
  ['tokens_per_forward', ({ perForward }) => perForward ?? ''],
  ['expert_wait_s', ({ phases }) => phases.wait],
  ['expert_matmul_s', ({ phases }) => phases.matmul],
  ['attention_s', ({ phases }) => phases.attention],
  ['lm_head_s', ({ phases }) => phases.head],
  ['other_s', ({ phases }) => phases.other],
  ['expert_disk_s', ({ turn }) => turn.expert_disk_s],
];

/** A line per turn, oldest first, with a line of names above. */
export function asCsv(rows: readonly TurnFigures[]): string {
  const lines = rows.map((row) => COLUMNS.map(([, read]) => read(row)).join(','));
  return [COLUMNS.map(([name]) => name).join(','), ...lines, ''].join('\n');
}

export function asJson(rows: readonly TurnFigures[]): string {
  const turns = rows.map((row) =>
    Object.fromEntries(COLUMNS.map(([name, read]) => [name, read(row)] as const)),
  );
  return `${JSON.stringify({ turns }, null, 2)}\n`;
}
