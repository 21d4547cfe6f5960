import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { TelemetryFeed } from './telemetry-feed';
import { useTelemetry } from './telemetry-store';

const ENDPOINT = { base: 'http://h/v1', apiKey: '' };
const HEALTH = { status: 'ok', scheduler: {} };
const answers: Record<string, () => Response | Promise<Response>> = {};
let asked: string[] = [];
let feed: TelemetryFeed;

function countOf(path: string): number {
  return asked.filter((one) => one === path).length;
}

function hide(isHidden: boolean): void {
  vi.spyOn(document, 'hidden', 'get').mockReturnValue(isHidden);
  document.dispatchEvent(new Event('visibilitychange'));
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
  asked = [];
  Object.assign(answers, {
    '/health': () => Response.json(HEALTH),
    '/events': () => new Response('', { status: 404 }),
    '/experts': () => Response.json({}),
    '/profile': () => Response.json({}),
  });
  vi.stubGlobal('fetch', (url: string) => {
    const { pathname } = new URL(url);
    asked.push(pathname);
    return Promise.resolve(answers[pathname]?.() ?? new Response('', { status: 404 }));
  });
  feed = new TelemetryFeed();
});
afterEach(() => {
  feed.stop();
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

describe('the feed of figures', () => {
  it('polls where the server pushes nothing, and asks for events once', async () => {
    feed.start(ENDPOINT);
    await vi.advanceTimersByTimeAsync(12_000);
    expect(useTelemetry.getState()).toMatchObject({ server: 'ready', transport: 'polling' });
    expect(countOf('/events')).toBe(1);
    expect(countOf('/health')).toBe(3);
    expect(countOf('/profile')).toBe(3);
  });

  it('asks more often for what a page shows', async () => {
    feed.start(ENDPOINT);
    await vi.advanceTimersByTimeAsync(100);
    const end = feed.watch('experts');
    asked = [];
    await vi.advanceTimersByTimeAsync(4600);
    expect(countOf('/experts')).toBe(4);
    end();
  });

  it('asks nothing while the page is hidden, and at once when it is shown', async () => {
    feed.start(ENDPOINT);
    await vi.advanceTimersByTimeAsync(100);
    hide(true);
    asked = [];
    await vi.advanceTimersByTimeAsync(30_000);
    expect(asked).toEqual([]);
    hide(false);
    await vi.advanceTimersByTimeAsync(100);
    expect(countOf('/health')).toBe(1);
  });

  it('asks a server of another kind for nothing else', async () => {
    answers['/health'] = () => new Response('<html>', { status: 404 });
    feed.start(ENDPOINT);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(useTelemetry.getState()).toMatchObject({ server: 'foreign', transport: 'none' });
    expect(asked).toEqual(['/health']);
  });

  it('asks a server that is gone more and more rarely, and finds it again', async () => {
    answers['/health'] = () => Promise.reject(new TypeError('refused'));
    feed.start(ENDPOINT);
    await vi.advanceTimersByTimeAsync(120_000);
    expect(useTelemetry.getState().server).toBe('unreachable');
    expect(countOf('/health')).toBeGreaterThan(4);
    expect(countOf('/health')).toBeLessThan(14);
    answers['/health'] = () => Response.json(HEALTH);
    await vi.advanceTimersByTimeAsync(40_000);
    expect(useTelemetry.getState().server).toBe('ready');
  });

  it('follows a stream and polls nothing', async () => {
    const text = 'event: turn\ndata: {"seq": 1, "turns": [{"wall_s": 2}]}\n\nevent: x\ndata: {\n\n';
    answers['/events'] = () =>
      new Response(
        new ReadableStream({
          start: (controller) => controller.enqueue(new TextEncoder().encode(text)),
        }),
        { headers: { 'Content-Type': 'text/event-stream' } },
      );
    feed.start(ENDPOINT);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(useTelemetry.getState()).toMatchObject({ transport: 'events', turnSeq: 1 });
    expect(asked).toEqual(['/health', '/events']);
  });
});
