// The only place that fetches: addresses, the key, time limits, and errors with their words.
import { rootOf } from '@/lib/endpoint';

/** Where requests go, and with which key. */
export interface Endpoint {
  base: string;
  apiKey: string;
}

/** `empty`: the answer is one, but there is nothing in it. */
export type RequestErrorKind = 'network' | 'timeout' | 'status' | 'format' | 'empty';

/** A request that brought no usable answer. `message` is what the server said, if it said anything. */
export class RequestError extends Error {
  override name = 'RequestError';
  readonly kind: RequestErrorKind;
  readonly status: number;
  readonly code: string;
  readonly param: string;
  readonly requestId: string;
  readonly retryAfterS: number | null;

  constructor(
    kind: RequestErrorKind,
    message: string,
    details: Partial<
      Pick<RequestError, 'status' | 'code' | 'param' | 'requestId' | 'retryAfterS'>
    > = {},
  ) {
    super(message);
    this.kind = kind;
    this.status = details.status ?? 0;
    this.code = details.code ?? '';
    this.param = details.param ?? '';
    this.requestId = details.requestId ?? '';
    this.retryAfterS = details.retryAfterS ?? null;
  }
}

export interface RequestOptions {
  method?: 'GET' | 'POST';
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  /** Until the head of the answer is there; bodies may take as long as they like. */
  timeoutMs?: number;
  /** Statuses besides 2xx whose body is wanted. */
  accept?: readonly number[];
}

/** A path below the base as entered, e.g. `/models`. */
export function apiUrl(endpoint: Endpoint, path: string): string {
  return endpoint.base.trim().replace(/\/+$/, '') + path;
}

/** A path below the server's root, e.g. `/health`. */
export function rootUrl(endpoint: Endpoint, path: string): string {
  return rootOf(endpoint.base) + path;
}

/** Send a request; the response has a good status, its body is not read yet. */
export async function send(
  url: string,
  endpoint: Endpoint,
  options: RequestOptions = {},
): Promise<Response> {
  const limit = new AbortController();
  const timer = setTimeout(
    () => limit.abort(new DOMException('no answer in time', 'TimeoutError')),
    options.timeoutMs ?? 2 ** 31 - 1,
  );
  const signals = options.signal ? [options.signal, limit.signal] : [limit.signal];
  let response: Response;
  try {
    response = await fetch(url, {
      method: options.method ?? 'GET',
      headers: headersOf(endpoint, options),
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
      signal: AbortSignal.any(signals),
      cache: 'no-store',
      credentials: 'omit',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    if (limit.signal.aborted) throw new RequestError('timeout', 'no answer in time');
    throw new RequestError('network', error instanceof Error ? error.message : String(error));
  } finally {
    clearTimeout(timer);
  }
  if (response.ok || options.accept?.includes(response.status)) return response;
  throw await errorOf(response);
}

/** Send a request and return the JSON of its answer. */
export async function sendForJson(
  url: string,
  endpoint: Endpoint,
  options: RequestOptions = {},
): Promise<unknown> {
  const response = await send(url, endpoint, options);
  try {
    return (await response.json()) as unknown;
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new RequestError('format', 'the answer is not JSON', { status: response.status });
  }
}

function headersOf(endpoint: Endpoint, options: RequestOptions): Record<string, string> {
  return {
    ...(endpoint.apiKey === '' ? {} : { Authorization: `Bearer ${endpoint.apiKey}` }),
    ...(options.body === undefined ? {} : { 'Content-Type': 'application/json' }),
    ...options.headers,
  };
}

async function errorOf(response: Response): Promise<RequestError> {
  const text = await response.text().catch(() => '');
  const said = errorFields(text);
  const wait = Number(response.headers.get('retry-after') ?? NaN);
  return new RequestError(
    'status',
    said.message || `${response.status} ${response.statusText}`.trim(),
    {
      status: response.status,
      code: said.code,
      param: said.param,
      requestId: response.headers.get('x-request-id') ?? '',
      retryAfterS: Number.isFinite(wait) && wait >= 0 ? wait : null,
    },
  );
}

/** Take an error object of the OpenAI form apart: `{"error": {message, code, param}}`. */
export function errorFields(text: string): { message: string; code: string; param: string } {
  const none = { message: '', code: '', param: '' };
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return none;
  }
  const error = fieldOf(body, 'error') ?? body;
  if (typeof error === 'string') return { ...none, message: error };
  return {
    message: textOf(fieldOf(error, 'message')),
    code: textOf(fieldOf(error, 'code')) || textOf(fieldOf(error, 'type')),
    param: textOf(fieldOf(error, 'param')),
  };
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
