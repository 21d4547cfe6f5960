// The atlas of the connected server, asked for once per server, and not where it tells of none.
import { useEffect } from 'react';
import { create } from 'zustand';
import { rootUrl, RequestError, sendForJson } from '@/lib/api-client';
import { readAtlas, type Atlas } from '@/lib/atlas/atlas';
import { useConnection } from '@/lib/connection/connection-store';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';

/** `missing`: the server has none; `unreadable`: it has a file that is no atlas. */
export type AtlasState =
  { status: 'unknown' | 'missing' | 'unreadable' | 'failed' } | { status: 'ready'; atlas: Atlas };

interface AtlasStore {
  base: string;
  state: AtlasState;
}

export const useAtlasStore = create<AtlasStore>()(() => ({
  base: '',
  state: { status: 'unknown' },
}));

async function load(base: string, apiKey: string): Promise<AtlasState> {
  const endpoint = { base, apiKey };
  try {
    const atlas = readAtlas(await sendForJson(rootUrl(endpoint, '/experts.json'), endpoint, {}));
    return atlas === null ? { status: 'unreadable' } : { status: 'ready', atlas };
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    if (error.kind === 'format') return { status: 'unreadable' };
    // A server that does not tell beforehand answers with 401, 404 or 405.
    return { status: error.kind === 'status' ? 'missing' : 'failed' };
  }
}

export function useAtlas(): AtlasState {
  const base = useConnection((connection) => connection.base);
  const apiKey = useConnection((connection) => connection.apiKey);
  const isConnected = useConnection((connection) => connection.status === 'connected');
  const state = useAtlasStore((store) => store.state);
  const isHeard = useTelemetry(({ server }) => server !== 'unknown');
  const isNone = useTelemetry(
    ({ server, health }) => server === 'foreign' || health?.atlas === false,
  );
  useEffect(() => {
    if (!isConnected || !isHeard) return;
    const store = useAtlasStore.getState();
    if (isNone) {
      useAtlasStore.setState({ base, state: { status: 'missing' } });
      return;
    }
    // One that is measured while the server runs is found when the server tells of it.
    const isOpen = store.state.status === 'failed' || store.state.status === 'missing';
    if (store.base === base && !isOpen) return;
    useAtlasStore.setState({ base, state: { status: 'unknown' } });
    void load(base, apiKey).then((loaded) => {
      if (useAtlasStore.getState().base === base) useAtlasStore.setState({ state: loaded });
    });
  }, [base, apiKey, isConnected, isHeard, isNone]);
  return state;
}
