// The atlas of the connected server, asked for once per server.
import { useEffect } from 'react';
import { create } from 'zustand';
import { rootUrl, RequestError, sendForJson } from '@/lib/api-client';
import { readAtlas, type Atlas } from '@/lib/atlas/atlas';
import { useConnection } from '@/lib/connection/connection-store';

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
    // Other servers answer with 401, 404 or 405 where they know no such file.
    return { status: error.kind === 'status' ? 'missing' : 'failed' };
  }
}

export function useAtlas(): AtlasState {
  const base = useConnection((connection) => connection.base);
  const apiKey = useConnection((connection) => connection.apiKey);
  const isConnected = useConnection((connection) => connection.status === 'connected');
  const state = useAtlasStore((store) => store.state);
  useEffect(() => {
    const store = useAtlasStore.getState();
    const isKnown = store.base === base && store.state.status !== 'failed';
    if (!isConnected || isKnown) return;
    useAtlasStore.setState({ base, state: { status: 'unknown' } });
    void load(base, apiKey).then((loaded) => {
      if (useAtlasStore.getState().base === base) useAtlasStore.setState({ state: loaded });
    });
  }, [base, apiKey, isConnected]);
  return state;
}
