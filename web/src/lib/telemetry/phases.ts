// Where the time of a turn went, as parts that add up. Shared by the panel and the profiling page.
import type { Turn } from '@/lib/schemas';

export const PHASES = ['wait', 'matmul', 'attention', 'head', 'other'] as const;
export type Phase = (typeof PHASES)[number];

/** The colour token of each part. */
export const PHASE_COLORS: Readonly<Record<Phase, string>> = {
  wait: '--phase-wait',
  matmul: '--phase-matmul',
  attention: '--phase-attention',
  head: '--phase-head',
  other: '--phase-other',
};

/** Seconds of each part; what the four do not explain is `other`, never below zero. */
export function phasesOf(turn: Turn): Record<Phase, number> {
  const known = {
    wait: turn.expert_wait_s,
    matmul: turn.expert_matmul_s,
    attention: turn.attention_s,
    head: turn.lm_head_s,
  };
  const sum = known.wait + known.matmul + known.attention + known.head;
  return { ...known, other: Math.max(0, turn.wall_s - sum) };
}

/** Tokens per second over the whole turn; 0 for a turn without time. */
export function turnRate(turn: Turn): number {
  return turn.wall_s > 0 ? turn.completion_tokens / turn.wall_s : 0;
}

/** Tokens per step of the model; null if it made none. */
export function tokensPerForward(turn: Turn): number | null {
  return turn.forwards > 0 ? turn.completion_tokens / turn.forwards : null;
}
