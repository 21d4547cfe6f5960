// Which server the page talks to and whether it answers. The key lives in memory only.
import { create } from 'zustand';
import { apiUrl, RequestError, sendForJson, type Endpoint } from '@/lib/api-client';
import { baseProblem, cleanBase, initialBase, isEngineServed } from '@/lib/endpoint';
import { modelsSchema, type ModelEntry } from '@/lib/schemas';
import { readStored, writeStored } from '@/lib/storage';

/** `loading`: something listens, but it does not answer yet. */
export type ConnectionStatus =
  'idle' | 'probing' | 'connected' | 'locked' | 'unreachable' | 'loading';

const DEFAULT_MODEL = 'glm-5.2-colibri';
const BASE_KEY = 'colibri.baseUrl';
const MODEL_KEY = 'colibri.model';
const PROBE_LIMIT_MS = 5000;
const RETRY_MS = 2000;

interface ConnectionState {
  base: string;
  apiKey: string;
  model: string;
  models: ModelEntry[];
  status: ConnectionStatus;
  /** Why it is not connected, in the server's or the browser's words. */
  error: RequestError | null;
  setBase: (base: string) => void;
  setApiKey: (apiKey: string) => void;
  selectModel: (model: string) => void;
  probe: () => Promise<void>;
}

let probing: AbortController | null = null;
let retry: ReturnType<typeof setTimeout> | undefined;

function cancelProbe(): void {
  probing?.abort();
  clearTimeout(retry);
}

export const useConnection = create<ConnectionState>()((set, get) => ({
  base: initialBase(window.location, readStored(BASE_KEY)),
  apiKey: '',
  model: readStored(MODEL_KEY) ?? DEFAULT_MODEL,
  models: [],
  status: 'idle',
  error: null,
  setBase: (base) => {
    cancelProbe();
    set({ base, status: 'idle', error: null, models: [] });
    if (baseProblem(base) === null) writeStored(BASE_KEY, cleanBase(base));
  },
  setApiKey: (apiKey) => {
    cancelProbe();
    set({ apiKey, status: 'idle', error: null });
  },
  selectModel: (model) => {
    set({ model });
    writeStored(MODEL_KEY, model);
  },
  probe: async () => {
    cancelProbe();
    const attempt = new AbortController();
    probing = attempt;
    if (get().status === 'idle') set({ status: 'probing' });
    try {
      const models = await listModels(endpointOf(get()), attempt.signal);
      const isListed = models.some((entry) => entry.id === get().model);
      const first = models[0];
      set({ models, status: 'connected', error: null });
      if (!isListed && first !== undefined) get().selectModel(first.id);
    } catch (error) {
      if (attempt.signal.aborted) return;
      const failure =
        error instanceof RequestError ? error : new RequestError('format', String(error));
      set({ status: statusAfter(failure), error: failure });
      if (get().status !== 'locked') retry = setTimeout(() => void get().probe(), RETRY_MS);
    }
  },
}));

export function endpointOf(state: Pick<ConnectionState, 'base' | 'apiKey'>): Endpoint {
  return { base: state.base, apiKey: state.apiKey };
}

/** The endpoint of the moment, outside React. */
export function currentEndpoint(): Endpoint {
  return endpointOf(useConnection.getState());
}

/** What the server says of the selected model; undefined before it is known. */
export function useModelEntry(): ModelEntry | undefined {
  return useConnection((state) => state.models.find((entry) => entry.id === state.model));
}

/** Remove what older releases left behind, and connect at once if the server brought the page. */
export function startConnection(): void {
  writeStored('colibri.apiKey', null);
  if (isEngineServed(window.location)) void useConnection.getState().probe();
}

async function listModels(endpoint: Endpoint, signal: AbortSignal): Promise<ModelEntry[]> {
  const answer = await sendForJson(apiUrl(endpoint, '/models'), endpoint, {
    signal,
    timeoutMs: PROBE_LIMIT_MS,
  });
  const models = modelsSchema.safeParse(answer);
  if (!models.success) throw new RequestError('format', 'the answer is no list of models');
  return models.data.data;
}

function statusAfter(error: RequestError): ConnectionStatus {
  if (error.status === 401) return 'locked';
  return error.kind === 'timeout' || error.status === 503 ? 'loading' : 'unreachable';
}
