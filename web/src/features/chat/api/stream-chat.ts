// POST /chat/completions as a stream of small facts. Knows the wire, no React and no store.
import { apiUrl, errorFields, RequestError, send, type Endpoint } from '@/lib/api-client';
import { readEventStream } from '@/lib/event-stream';
import type { TokenChance } from '../model/token-chances';

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number;
  reasoningTokens: number;
}

export type ChatDelta =
  | { type: 'head'; queueWaitMs: number | null; requestId: string }
  | { type: 'content'; text: string }
  /** The tokens of the content that follows. */
  | { type: 'chances'; tokens: TokenChance[] }
  | { type: 'reasoning'; text: string }
  | { type: 'tool'; index: number; id: string; name: string; arguments: string }
  | { type: 'prefill'; done: number; total: number }
  | { type: 'finish'; reason: string }
  | { type: 'usage'; usage: Usage }
  | { type: 'telemetry'; hitPercent: number | null; rssGb: number | null }
  | { type: 'malformed' }
  | { type: 'failed'; message: string; code: string }
  | { type: 'done' };

/** Once text has come for this long, reads pause; the rate of a short answer is told exactly. */
const REST_AFTER_MS = 1000;
const REST_MS = 60; // 16 reads a second at most, however fast the tokens come

export type ChatBody = Record<string, unknown>;

/** Send a request and report its answer piece by piece; rejects if there is none. */
export async function streamChat(
  endpoint: Endpoint,
  body: ChatBody,
  onDelta: (delta: ChatDelta) => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await send(apiUrl(endpoint, '/chat/completions'), endpoint, {
    method: 'POST',
    body,
    signal,
  });
  onDelta({
    type: 'head',
    queueWaitMs: numberOf(response.headers.get('x-colibri-queue-wait-ms')),
    requestId: response.headers.get('x-request-id') ?? '',
  });
  if (response.headers.get('content-type')?.includes('application/json')) {
    for (const delta of parseWhole(await response.text())) onDelta(delta);
    return;
  }
  if (response.body === null) throw new RequestError('format', 'the answer is empty');
  let textAt: number | null = null;
  await readEventStream(response.body, {
    onEvent: (_name, data) => {
      for (const delta of parseChunk(data)) {
        if (delta.type === 'content' || delta.type === 'reasoning') textAt ??= performance.now();
        onDelta(delta);
      }
    },
    restMs: () => (textAt !== null && performance.now() - textAt > REST_AFTER_MS ? REST_MS : 0),
    onComment: (text) => {
      const found = /^\s*prefill (\d+)\/(\d+)/.exec(text);
      if (found) onDelta({ type: 'prefill', done: Number(found[1]), total: Number(found[2]) });
    },
  });
}

/** What one event of the stream says. */
export function parseChunk(data: string): ChatDelta[] {
  if (data.trim() === '[DONE]') return [{ type: 'done' }];
  let chunk: unknown;
  try {
    chunk = JSON.parse(data);
  } catch {
    return [{ type: 'malformed' }];
  }
  if (!isRecord(chunk)) return [{ type: 'malformed' }];
  if (chunk.error !== undefined && chunk.error !== null) {
    const { message, code } = errorFields(data);
    return [{ type: 'failed', message, code }];
  }
  return [...choiceDeltas(chunk), ...usageDeltas(chunk), ...telemetryDeltas(chunk)];
}

/** What a server says that answers in one piece, though a stream was asked for. */
function parseWhole(text: string): ChatDelta[] {
  try {
    const answer: unknown = JSON.parse(text);
    const choice: unknown =
      isRecord(answer) && Array.isArray(answer.choices) ? answer.choices[0] : undefined;
    if (!isRecord(answer) || !isRecord(choice)) return parseChunk(text);
    const chunk = { ...answer, choices: [{ ...choice, delta: choice.message }] };
    return [...parseChunk(JSON.stringify(chunk)), { type: 'done' }];
  } catch {
    return [{ type: 'malformed' }];
  }
}

function choiceDeltas(chunk: Record<string, unknown>): ChatDelta[] {
  const choice: unknown = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
  if (!isRecord(choice)) return [];
  const found: ChatDelta[] = [];
  const delta = isRecord(choice.delta) ? choice.delta : {};
  const reasoning = textOf(delta.reasoning_content) || textOf(delta.reasoning);
  if (reasoning !== '') found.push({ type: 'reasoning', text: reasoning });
  const content = textOf(delta.content);
  // Some servers tell those of the reasoning, too.
  const tokens = reasoning === '' ? chancesOf(choice.logprobs) : [];
  if (tokens.length > 0) found.push({ type: 'chances', tokens });
  if (content !== '') found.push({ type: 'content', text: content });
  for (const call of Array.isArray(delta.tool_calls) ? (delta.tool_calls as unknown[]) : []) {
    if (isRecord(call)) found.push(toolDelta(call));
  }
  const reason = textOf(choice.finish_reason);
  if (reason !== '') found.push({ type: 'finish', reason });
  return found;
}

function chancesOf(logprobs: unknown): TokenChance[] {
  const tokens: unknown = isRecord(logprobs) ? logprobs.content : undefined;
  return (Array.isArray(tokens) ? (tokens as unknown[]) : []).filter(isRecord).map((token) => {
    const top = Array.isArray(token.top_logprobs) ? (token.top_logprobs as unknown[]) : [];
    return {
      text: textOf(token.token),
      chance: chanceOf(token),
      others: top.filter(isRecord).flatMap((other) => {
        const chance = chanceOf(other);
        return chance === null ? [] : [{ text: textOf(other.token), chance }];
      }),
    };
  });
}

function chanceOf(token: Record<string, unknown>): number | null {
  const logprob = numberOf(token.logprob);
  return logprob === null ? null : Math.min(1, Math.exp(logprob));
}

function toolDelta(call: Record<string, unknown>): ChatDelta {
  const target = isRecord(call.function) ? call.function : {};
  return {
    type: 'tool',
    index: typeof call.index === 'number' ? call.index : 0,
    id: textOf(call.id),
    name: textOf(target.name),
    arguments: textOf(target.arguments),
  };
}

function usageDeltas(chunk: Record<string, unknown>): ChatDelta[] {
  const { usage } = chunk;
  if (!isRecord(usage)) return [];
  const detail = (group: unknown, name: string): number =>
    isRecord(group) ? countOf(group[name]) : 0;
  return [
    {
      type: 'usage',
      usage: {
        promptTokens: countOf(usage.prompt_tokens),
        completionTokens: countOf(usage.completion_tokens),
        cachedTokens: detail(usage.prompt_tokens_details, 'cached_tokens'),
        reasoningTokens: detail(usage.completion_tokens_details, 'reasoning_tokens'),
      },
    },
  ];
}

function telemetryDeltas(chunk: Record<string, unknown>): ChatDelta[] {
  if (!isRecord(chunk.colibri)) return [];
  const stats = isRecord(chunk.colibri.stats) ? chunk.colibri.stats : {};
  // No memory means that the engine is another server's, which tells neither.
  if (numberOf(stats.rss_gb) === 0) return [];
  return [
    { type: 'telemetry', hitPercent: numberOf(stats.hit_percent), rssGb: numberOf(stats.rss_gb) },
  ];
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function numberOf(value: unknown): number | null {
  const number = typeof value === 'string' && value !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : null;
}

/** A number of tokens; 0 for what can be none. */
function countOf(value: unknown): number {
  const count = numberOf(value) ?? 0;
  return count >= 0 && count <= Number.MAX_SAFE_INTEGER ? count : 0;
}
