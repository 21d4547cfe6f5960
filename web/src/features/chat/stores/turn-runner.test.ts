import { renderHook } from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { useConnection } from '@/lib/connection/connection-store';
import { readHealth } from '@/lib/telemetry/readings';
import { resetTelemetry, useTelemetry } from '@/lib/telemetry/telemetry-store';
import { conversationOf, messageOf } from '@/testing/messages';
import { useSampling } from '../model/sampling';
import { useChanceSupport } from './chance-support';
import { addStored, useChat } from './chat-store';
import { answerTo, runTurn, serverFeatures, stopTurn } from './turn-runner';

let body: ReadableStreamDefaultController<Uint8Array>;

function write(text: string): void {
  body.enqueue(new TextEncoder().encode(text));
}

function piece(text: string): string {
  return `data: ${JSON.stringify({ choices: [{ delta: { content: text } }] })}\n\n`;
}

function answers(): string[] {
  return Object.values(useChat.getState().messages.c ?? {})
    .filter((message) => message.role === 'assistant')
    .map((message) => message.content);
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => {
      body = controller;
    },
  });
  vi.stubGlobal('fetch', vi.fn().mockResolvedValue(new Response(stream)));
  addStored({
    conversations: [conversationOf({ id: 'c', leaf: 'q' })],
    messages: [messageOf({ id: 'q', conversation: 'c', role: 'user', content: 'hi' })],
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  useChat.setState(useChat.getInitialState(), true);
});

describe('a turn', () => {
  it('at a hundred tokens a second changes what is shown at most nine times', async () => {
    const turn = runTurn(answerTo('c', 'q'));
    await vi.advanceTimersByTimeAsync(0);
    const shown = new Set<string>();
    const figures = new Set<unknown>();
    const end = useChat.subscribe((state) => {
      for (const text of answers()) shown.add(text);
      figures.add(state.live.c);
    });
    for (let token = 0; token < 100; token += 1) {
      write(piece(`t${token} `));
      await vi.advanceTimersByTimeAsync(10);
    }
    end();
    expect(shown.size).toBeGreaterThan(1);
    expect(shown.size).toBeLessThanOrEqual(9);
    expect(figures.size).toBeLessThanOrEqual(9);
    write('data: [DONE]\n\n');
    body.close();
    expect(await turn).toBeNull();
    expect(answers()).toEqual([Array.from({ length: 100 }, (_, token) => `t${token} `).join('')]);
  });

  it('that is stopped keeps its text', async () => {
    const turn = runTurn(answerTo('c', 'q'));
    await vi.advanceTimersByTimeAsync(0);
    write(piece('Hello'));
    await vi.advanceTimersByTimeAsync(200);
    stopTurn('c');
    body.error(new DOMException('stopped', 'AbortError')); // as a real fetch ends its body
    expect(await turn).toBeNull();
    expect(answers()).toEqual(['Hello']);
    expect(useChat.getState().live).toEqual({});
  });

  it('that breaks off without an end is marked as cut', async () => {
    const turn = runTurn(answerTo('c', 'q'));
    await vi.advanceTimersByTimeAsync(0);
    write(piece('Hel'));
    body.close();
    expect(await turn).toBeNull();
    const [answer] = Object.values(useChat.getState().messages.c ?? {}).slice(-1);
    expect(answer).toMatchObject({ content: 'Hel', state: 'cut' });
  });
});

describe('an answer without a word', () => {
  const respond = (text: string, init?: ResponseInit): void => {
    vi.mocked(fetch).mockResolvedValue(new Response(text, init));
  };
  const ask = (): ReturnType<typeof runTurn> => runTurn(answerTo('c', 'q'));

  it.each(['', 'data: [DONE]\n\n', '<html>Please log in</html>'])('is told: %j', async (text) => {
    respond(text);
    expect(await ask()).toMatchObject({ kind: 'empty' });
    expect(answers()).toEqual([]);
  });

  it('is told in the words of a server that failed after it had begun', async () => {
    const error = { message: 'the engine ended', code: 'engine_error' };
    respond(`data: ${JSON.stringify({ error })}\n\n`);
    expect(await ask()).toMatchObject({
      kind: 'status',
      status: 500,
      code: 'engine_error',
      message: 'the engine ended',
    });
  });

  it('is none where it came in one piece', async () => {
    const message = { role: 'assistant', content: 'whole' };
    respond(JSON.stringify({ choices: [{ message, finish_reason: 'stop' }] }), {
      headers: { 'content-type': 'application/json; charset=utf-8' },
    });
    expect(await ask()).toBeNull();
    expect(answers()).toEqual(['whole']);
  });

  it('is not waited for longer than a reader would', async () => {
    respond('{"error":{"message":"full"}}', {
      status: 429,
      headers: { 'retry-after': '3000000' },
    });
    expect(await ask()).toMatchObject({ status: 429, message: 'full' });
    expect(fetch).toHaveBeenCalledTimes(1);
  });
});

describe('probabilities of tokens', () => {
  const asked = (): unknown[] =>
    vi.mocked(fetch).mock.calls.map(([, init]) => {
      const sent = JSON.parse(init?.body as string) as Record<string, unknown>;
      return [sent.logprobs, sent.top_logprobs];
    });
  const stream = (logprobs: object | null): Response => {
    const told = { choices: [{ delta: { content: 'Hi' }, logprobs, finish_reason: 'stop' }] };
    return new Response(`data: ${JSON.stringify(told)}\n\n`);
  };
  const ask = (): Promise<unknown> => runTurn(answerTo('c', 'q'));
  const support = (): string | undefined => renderHook(useChanceSupport).result.current;

  beforeEach(() => useSampling.getState().change({ isTinted: true }));
  afterEach(() => useSampling.getState().change({ isTinted: false }));

  it('are asked for and kept where they are wanted', async () => {
    useConnection.setState({ model: 'tells' });
    const tokens = { content: [{ token: 'Hi', logprob: 0, top_logprobs: [] }] };
    vi.mocked(fetch).mockResolvedValue(stream(tokens));
    expect(await ask()).toBeNull();
    expect(asked()).toEqual([[true, 5]]);
    expect(Object.values(useChat.getState().messages.c ?? {}).at(-1)?.chances).toEqual([
      { text: 'Hi', chance: 1, others: [] },
    ]);
    expect(support()).toBe('told');
  });

  it('are not asked for again of a server that refuses, whose answer is had all the same', async () => {
    useConnection.setState({ model: 'refuses' });
    const error = { error: { message: 'logprobs is not supported', param: 'logprobs' } };
    vi.mocked(fetch)
      .mockResolvedValueOnce(new Response(JSON.stringify(error), { status: 400 }))
      .mockImplementation(() => Promise.resolve(stream(null)));
    expect(await ask()).toBeNull();
    expect(await ask()).toBeNull();
    expect(asked()).toEqual([
      [true, 5],
      [undefined, undefined],
      [undefined, undefined],
    ]);
    expect(answers()).toEqual(['Hi', 'Hi']);
    expect(support()).toBe('refused');
  });

  it('that a server leaves out are noticed as missing', async () => {
    useConnection.setState({ model: 'leaves out' });
    vi.mocked(fetch).mockResolvedValue(stream(null));
    expect(await ask()).toBeNull();
    expect(support()).toBe('absent');
  });
});

describe('what the server can do', () => {
  afterEach(() => resetTelemetry());

  it('names no slot to a server that stands in front of another', () => {
    const health = { status: 'ok', scheduler: {}, kv_slots: 256 };
    useTelemetry.setState(readHealth(health));
    expect(serverFeatures().kvSlots).toBe(256);
    expect(serverFeatures().hasOurEngine).toBe(true);
    useTelemetry.setState(readHealth({ ...health, upstream: { server: 'vllm', url: 'http://b' } }));
    expect(serverFeatures().kvSlots).toBe(0);
    expect(serverFeatures().hasOurEngine).toBe(false);
    expect(serverFeatures().isColibri).toBe(true);
  });
});
