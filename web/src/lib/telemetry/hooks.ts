// Telemetry for components. Each hook renders its component only when its own part changes.
import { useEffect } from 'react';
import type { Experts, Health, Progress, Turn } from '@/lib/schemas';
import { telemetryFeed } from '@/lib/telemetry/telemetry-feed';
import { useTelemetry, type ServerState } from '@/lib/telemetry/telemetry-store';
import { useNow } from '@/lib/use-now';

export function useHealth(): Health | null {
  return useTelemetry((state) => state.health);
}

export function useServerState(): ServerState {
  return useTelemetry((state) => state.server);
}

export function useTurns(): Turn[] {
  return useTelemetry((state) => state.turns);
}

export function useProgress(): Progress | null {
  return useTelemetry((state) => state.progress);
}

export function useExperts(): Experts | null {
  return useTelemetry((state) => state.experts);
}

/** Ask for a source as often as a page that shows it needs, while the component is mounted. */
export function useWatch(source: 'experts' | 'profile'): void {
  useEffect(() => telemetryFeed.watch(source), [source]);
}

/** Call a function for every new expert map, outside React's rendering; for canvases. */
export function onExperts(listener: (experts: Experts) => void): () => void {
  const { experts } = useTelemetry.getState();
  if (experts !== null) listener(experts);
  return useTelemetry.subscribe((state, before) => {
    if (state.experts !== null && state.experts !== before.experts) listener(state.experts);
  });
}

export interface TelemetryAge {
  seconds: number;
  /** Three updates were missed: the figures are shown as old. */
  isStale: boolean;
}

const STALE_S = 16;

/** How old the figures are; null before there are any. */
export function useTelemetryAge(): TelemetryAge | null {
  const heardAt = useTelemetry((state) => state.heardAt);
  const server = useServerState();
  const now = useNow(1000);
  if (heardAt === 0) return null;
  const seconds = Math.max(0, Math.round((now - heardAt) / 1000));
  const isGone = server === 'unreachable' || server === 'down' || server === 'restarting';
  return { seconds, isStale: isGone || seconds > STALE_S };
}
