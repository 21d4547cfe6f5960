import { afterEach, describe, expect, it, vi } from 'vitest';
import { apiUrl, errorFields, RequestError, rootUrl, send, sendForJson } from './api-client';

const endpoint = { base: 'http://h:1/v1/', apiKey: 'secret' };

function answerWith(response: Response): void {
  vi.stubGlobal(
    'fetch',
    vi.fn(() => Promise.resolve(response)),
  );
}

async function failure(promise: Promise<unknown>): Promise<RequestError> {
  const error: unknown = await promise.catch((reason: unknown) => reason);
  if (error instanceof RequestError) return error;
  throw new Error(`not refused: ${String(error)}`);
}

afterEach(() => vi.unstubAllGlobals());

describe('requests', () => {
  it('go below the base or the root, with the key', async () => {
    answerWith(Response.json({ a: 1 }));
    expect(await sendForJson(apiUrl(endpoint, '/models'), endpoint)).toEqual({ a: 1 });
    expect(apiUrl(endpoint, '/models')).toBe('http://h:1/v1/models');
    expect(rootUrl(endpoint, '/health')).toBe('http://h:1/health');
    const headers = vi.mocked(fetch).mock.calls[0]?.[1]?.headers;
    expect(headers).toEqual({ Authorization: 'Bearer secret' });
  });

  it('fail with the words of the server', async () => {
    const body = JSON.stringify({ error: { message: 'no', code: 'c', param: 'p' } });
    const headers = { 'retry-after': '7', 'x-request-id': 'r' };
    answerWith(new Response(body, { status: 429, headers }));
    expect(await failure(send('http://h', endpoint))).toMatchObject({
      kind: 'status',
      status: 429,
      message: 'no',
      code: 'c',
      param: 'p',
      retryAfterS: 7,
      requestId: 'r',
    });
  });

  it('fail with the status where the server says nothing', async () => {
    answerWith(new Response('<html>', { status: 502, statusText: 'Bad Gateway' }));
    expect((await failure(send('http://h', endpoint))).message).toBe('502 Bad Gateway');
  });

  it('tell a network failure from a silence and from an answer that is no JSON', async () => {
    vi.stubGlobal(
      'fetch',
      vi.fn(() => Promise.reject(new TypeError('failed'))),
    );
    expect((await failure(send('http://h', endpoint))).kind).toBe('network');
    vi.stubGlobal(
      'fetch',
      vi.fn((_url: string, init: RequestInit) => {
        return new Promise((_resolve, reject) => {
          init.signal?.addEventListener('abort', () => reject(new Error('aborted')));
        });
      }),
    );
    expect((await failure(send('http://h', endpoint, { timeoutMs: 1 }))).kind).toBe('timeout');
    answerWith(new Response('x'));
    expect((await failure(sendForJson('http://h', endpoint))).kind).toBe('format');
  });

  it.each([
    ['{"error":"text"}', 'text'],
    ['{"message":"flat"}', 'flat'],
    ['{"error":{"message":7}}', ''],
    ['nothing', ''],
  ])('find the words in %s', (text, message) => {
    expect(errorFields(text).message).toBe(message);
  });
});
