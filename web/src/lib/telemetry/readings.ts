// What an answer of the server means for the store. Pure.
import {
  expertsSchema,
  healthSchema,
  profileSchema,
  progressSchema,
  type Health,
  type Turn,
} from '@/lib/schemas';
import type { ServerState, TelemetryState } from '@/lib/telemetry/telemetry-store';

type Change = Partial<TelemetryState>;
const MAX_TURNS = 120;

/** The state that a health object tells of. */
export function serverStateOf(health: Health, hasKeyTrouble: boolean): ServerState {
  if (health.engine?.state === 'restarting') return 'restarting';
  if (health.status === 'loading') {
    return (health.engine?.restarts ?? 0) > 0 ? 'restarting' : 'loading';
  }
  if (health.status !== 'ok') return 'down';
  if (health.scheduler === undefined) return hasKeyTrouble ? 'locked' : 'foreign';
  return 'ready';
}

export function readHealth(answer: unknown, hasKeyTrouble = false): Change {
  const health = healthSchema.safeParse(answer);
  if (!health.success) return { server: 'foreign', health: null };
  const server = serverStateOf(health.data, hasKeyTrouble);
  // While the engine is away the last figures stay; they are shown as old.
  const isPartial = health.data.scheduler === undefined && server === 'down';
  return isPartial ? { server, error: '' } : { server, health: health.data, error: '' };
}

export function readExperts(answer: unknown, state: TelemetryState): Change {
  const experts = expertsSchema.safeParse(answer);
  if (!experts.success || experts.data.rows === 0) return {};
  const isSame = state.experts?.seq === experts.data.seq && state.experts.map === experts.data.map;
  return isSame ? {} : { experts: experts.data };
}

/** `/profile` lists all turns, the event only the new ones; numbers tell which are known. */
export function readTurns(answer: unknown, state: TelemetryState): Change {
  const profile = profileSchema.safeParse(answer);
  if (!profile.success) return {};
  const { seq, turns } = profile.data;
  if (seq < state.turnSeq) return { turnSeq: seq, turns }; // another engine counts anew
  const numNew = Math.min(seq - state.turnSeq, turns.length);
  if (numNew === 0) return {};
  const merged: Turn[] = [...state.turns, ...turns.slice(-numNew)];
  return { turnSeq: seq, turns: merged.slice(-MAX_TURNS) };
}

export function readProgress(answer: unknown): Change {
  const progress = progressSchema.safeParse(answer);
  return progress.success ? { progress: progress.data } : {};
}

export function readTiers(answer: unknown, state: TelemetryState): Change {
  if (state.health === null) return {};
  const health = healthSchema.safeParse({ ...state.health, tiers: answer });
  return health.success ? { health: health.data } : {};
}
