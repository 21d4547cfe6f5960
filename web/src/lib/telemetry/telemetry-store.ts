// The latest figures of the server, however they arrived. Written by the feed, read by hooks.
import { create } from 'zustand';
import type { Experts, Health, Progress, Turn } from '@/lib/schemas';

/** `none`: not connected, or a server without these routes. */
export type Transport = 'none' | 'events' | 'polling';

/**
 * How the server is: `foreign` has no figures to show, `locked` keeps them for those with a key,
 * `down` has lost its engine, `unreachable` does not answer at all.
 */
export type ServerState =
  'unknown' | 'ready' | 'loading' | 'restarting' | 'down' | 'unreachable' | 'locked' | 'foreign';

export interface TelemetryState {
  server: ServerState;
  transport: Transport;
  health: Health | null;
  experts: Experts | null;
  /** Oldest first, the newest 120. */
  turns: Turn[];
  turnSeq: number;
  progress: Progress | null;
  /** When the server was last heard of, by the browser's clock; 0 if never. */
  heardAt: number;
  error: string;
}

const INITIAL: TelemetryState = {
  server: 'unknown',
  transport: 'none',
  health: null,
  experts: null,
  turns: [],
  turnSeq: 0,
  progress: null,
  heardAt: 0,
  error: '',
};

export const useTelemetry = create<TelemetryState>()(() => INITIAL);

export function resetTelemetry(): void {
  useTelemetry.setState(INITIAL, true);
}
