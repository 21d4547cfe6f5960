// Keeps the telemetry store up to date: `/events` where the server has it, else polling. Quiet while
// the page is hidden, slower and slower while the server does not answer.
import { RequestError, rootUrl, send, sendForJson, type Endpoint } from '@/lib/api-client';
import { readEventStream } from '@/lib/event-stream';
import {
  readExperts,
  readHealth,
  readProgress,
  readTiers,
  readTurns,
} from '@/lib/telemetry/readings';
import { resetTelemetry, useTelemetry, type TelemetryState } from '@/lib/telemetry/telemetry-store';

type Source = 'health' | 'experts' | 'profile';
type Watched = Exclude<Source, 'health'>;

const IDLE_MS = 5000;
const WATCHED_MS: Readonly<Record<Watched, number>> = { experts: 1500, profile: 2000 };
const FIRST_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 30_000;
const REQUEST_LIMIT_MS = 5000;
const STREAM_SILENCE_MS = 25_000; // the server shows a sign of life every ten seconds

const READERS: Readonly<Record<string, (data: unknown, state: TelemetryState) => object>> = {
  health: (data) => readHealth(data),
  tiers: readTiers,
  experts: readExperts,
  turn: readTurns,
  profile: readTurns,
  progress: (data) => readProgress(data),
};

export class TelemetryFeed {
  private endpoint: Endpoint | null = null;
  private run: AbortController | null = null;
  private timers: ReturnType<typeof setTimeout>[] = [];
  private failures = 0;
  private hasEvents = true;
  private readonly watchers: Record<Watched, number> = { experts: 0, profile: 0 };

  /** Begin anew with this server. */
  start(endpoint: Endpoint): void {
    this.stop();
    resetTelemetry();
    this.endpoint = endpoint;
    this.hasEvents = true;
    document.addEventListener('visibilitychange', this.onVisibility);
    if (!document.hidden) this.resume();
  }

  stop(): void {
    this.pause();
    this.endpoint = null;
    document.removeEventListener('visibilitychange', this.onVisibility);
  }

  /** Ask now, e.g. because a turn ended. A stream needs no asking. */
  refresh(): void {
    if (this.endpoint === null || document.hidden) return;
    if (useTelemetry.getState().transport !== 'events') this.resume();
  }

  /** Ask for this more often while someone looks at it; returns how to end that. */
  watch(source: Watched): () => void {
    this.watchers[source] += 1;
    this.refresh();
    return () => {
      this.watchers[source] -= 1;
    };
  }

  private readonly onVisibility = (): void => {
    if (document.hidden) this.pause();
    else this.resume();
  };

  private pause(): void {
    this.run?.abort();
    this.run = null;
    this.timers.forEach(clearTimeout);
    this.timers = [];
  }

  private resume(): void {
    this.pause();
    this.failures = 0;
    const run = new AbortController();
    this.run = run;
    void this.cycle(run.signal);
  }

  /** Ask for the health; what it says decides how to go on. */
  private async cycle(signal: AbortSignal): Promise<void> {
    await this.poll('health', signal);
    if (signal.aborted) return;
    const { server } = useTelemetry.getState();
    if (server === 'foreign' || server === 'locked') {
      useTelemetry.setState({ transport: 'none' });
    } else if (server === 'unreachable' || (this.hasEvents && (await this.follow(signal)))) {
      if (this.run?.signal === signal) useTelemetry.setState({ transport: 'none' });
      this.later(() => this.cycle(signal), this.backoff(), signal);
    } else {
      useTelemetry.setState({ transport: 'polling' });
      this.later(() => this.pollOn('health', signal), IDLE_MS, signal);
      void this.pollOn('experts', signal);
      void this.pollOn('profile', signal);
    }
  }

  private async pollOn(source: Source, signal: AbortSignal): Promise<void> {
    await this.poll(source, signal);
    if (signal.aborted) return;
    const usual = source !== 'health' && this.watchers[source] > 0 ? WATCHED_MS[source] : IDLE_MS;
    const wait = this.failures > 0 ? Math.max(usual, this.backoff()) : usual;
    this.later(() => this.pollOn(source, signal), wait, signal);
  }

  private async poll(source: Source, signal: AbortSignal): Promise<void> {
    const { endpoint } = this;
    if (endpoint === null) return;
    try {
      const answer = await sendForJson(rootUrl(endpoint, `/${source}`), endpoint, {
        signal,
        timeoutMs: REQUEST_LIMIT_MS,
        accept: source === 'health' ? [503] : [],
      });
      this.failures = 0;
      this.take(source, answer);
    } catch (error) {
      if (signal.aborted) return;
      this.note(source, error);
    }
  }

  /** Follow the event stream to its end; false if the server has none. */
  private async follow(signal: AbortSignal): Promise<boolean> {
    const { endpoint } = this;
    if (endpoint === null) return false;
    const silence = new AbortController();
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const onActivity = (): void => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silence.abort(), STREAM_SILENCE_MS);
      this.hear();
    };
    try {
      const response = await send(rootUrl(endpoint, '/events'), endpoint, {
        signal: AbortSignal.any([signal, silence.signal]),
        headers: { Accept: 'text/event-stream' },
        timeoutMs: REQUEST_LIMIT_MS,
      });
      const type = response.headers.get('content-type') ?? '';
      if (!type.startsWith('text/event-stream') || response.body === null) {
        await response.body?.cancel();
        this.hasEvents = false;
        return false;
      }
      useTelemetry.setState({ transport: 'events' });
      this.failures = 0;
      await readEventStream(response.body, {
        onEvent: (name, data) => this.takeEvent(name, data),
        onActivity,
      });
    } catch (error) {
      if (!signal.aborted && error instanceof RequestError && error.kind === 'status') {
        this.hasEvents = false;
        return false;
      }
    } finally {
      clearTimeout(watchdog);
    }
    return true;
  }

  private takeEvent(name: string, data: string): void {
    try {
      this.take(name, JSON.parse(data) as unknown);
    } catch {
      // an event that is no JSON is one less, nothing else
    }
  }

  private take(source: string, answer: unknown): void {
    const change = READERS[source]?.(answer, useTelemetry.getState()) ?? {};
    if (Object.keys(change).length > 0) useTelemetry.setState(change);
    this.hear();
  }

  private hear(): void {
    const now = Date.now();
    // By the second: whoever shows the age need not render for every event.
    if (now - useTelemetry.getState().heardAt >= 1000) useTelemetry.setState({ heardAt: now });
  }

  private note(source: Source, error: unknown): void {
    const isAnswer = error instanceof RequestError && ['status', 'format'].includes(error.kind);
    if (source === 'health' && isAnswer) {
      useTelemetry.setState({ server: 'foreign', health: null, heardAt: Date.now() });
      return;
    }
    if (isAnswer) return;
    this.failures += 1;
    const message = error instanceof Error ? error.message : String(error);
    useTelemetry.setState({ server: 'unreachable', error: message, progress: null });
  }

  private backoff(): number {
    const wait = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.max(0, this.failures - 1));
    return wait * (0.8 + 0.4 * Math.random());
  }

  private later(task: () => Promise<void>, ms: number, signal: AbortSignal): void {
    if (signal.aborted) return; // a newer run has taken over
    this.timers.push(setTimeout(() => void task(), ms));
  }
}

export const telemetryFeed = new TelemetryFeed();
