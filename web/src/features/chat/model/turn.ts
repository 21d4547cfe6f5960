// How an answer grows while it is streamed, and what is measured of it. Pure: time is passed in.
import type { ChatDelta, Usage } from '../api/stream-chat';
import type { Message, ToolCall, TurnFigures } from './conversation';
import { cutChances, withChances, type TokenChance } from './token-chances';

/** `waiting`: nothing came back yet; `prefill`: the prompt is being read. */
export type TurnPhase = 'waiting' | 'prefill' | 'thinking' | 'answering';

export interface Turn {
  startedAt: number;
  firstAt: number | null;
  lastAt: number | null;
  answerAt: number | null;
  /** Pieces so far; one is a token, or several with some servers. */
  pieces: number;
  phase: TurnPhase;
  prefill: { done: number; total: number } | null;
  queueWaitMs: number | null;
  requestId: string;
  content: string;
  reasoning: string;
  toolCalls: ToolCall[];
  /** The content token by token; empty where the server tells no probabilities. */
  chances: readonly TokenChance[];
  /** Tokens whose text has not come yet. */
  coming: readonly TokenChance[];
  finish: string;
  usage: Usage | null;
  hitPercent: number | null;
  rssGb: number | null;
  failure: string;
  failureCode: string;
  hasMalformed: boolean;
  isDone: boolean;
}

/** A turn that begins now, or goes on with the text of an answer that was cut. */
export function startTurn(
  now: number,
  before?: Pick<Message, 'content' | 'reasoning' | 'chances'>,
): Turn {
  const content = before?.content ?? '';
  return {
    startedAt: now,
    firstAt: null,
    lastAt: null,
    answerAt: null,
    pieces: 0,
    phase: 'waiting',
    prefill: null,
    queueWaitMs: null,
    requestId: '',
    content,
    reasoning: before?.reasoning ?? '',
    toolCalls: [],
    chances: cutChances(before?.chances ?? [], content.length),
    coming: [],
    finish: '',
    usage: null,
    hitPercent: null,
    rssGb: null,
    failure: '',
    failureCode: '',
    hasMalformed: false,
    isDone: false,
  };
}

/** Take one piece of the answer in. */
export function applyDelta(turn: Turn, delta: ChatDelta, now: number): Turn {
  switch (delta.type) {
    case 'head':
      return {
        ...turn,
        phase: 'prefill',
        queueWaitMs: delta.queueWaitMs,
        requestId: delta.requestId,
      };
    case 'prefill':
      return { ...turn, prefill: { done: delta.done, total: delta.total } };
    case 'reasoning':
      return {
        ...withPiece(turn, now),
        phase: 'thinking',
        reasoning: turn.reasoning + delta.text,
      };
    case 'content':
      return withContent(withAnswer(turn, now), delta.text);
    case 'chances':
      return { ...turn, coming: [...turn.coming, ...delta.tokens] };
    case 'tool':
      return {
        ...withAnswer(turn, now),
        toolCalls: withToolPiece(turn.toolCalls, delta),
        coming: [],
      };
    case 'finish':
      return { ...turn, finish: delta.reason };
    case 'usage':
      return { ...turn, usage: delta.usage };
    case 'telemetry':
      return { ...turn, hitPercent: delta.hitPercent, rssGb: delta.rssGb };
    case 'malformed':
      return { ...turn, hasMalformed: true };
    case 'failed':
      return { ...turn, failure: delta.message || delta.code, failureCode: delta.code };
    case 'done':
      return { ...turn, isDone: true };
  }
}

function withPiece(turn: Turn, now: number): Turn {
  return { ...turn, pieces: turn.pieces + 1, firstAt: turn.firstAt ?? now, lastAt: now };
}

function withAnswer(turn: Turn, now: number): Turn {
  return { ...withPiece(turn, now), phase: 'answering', answerAt: turn.answerAt ?? now };
}

function withContent(turn: Turn, text: string): Turn {
  const content = turn.content + text;
  if (turn.coming.length === 0 && turn.chances.length === 0) return { ...turn, content };
  // An answer that goes on may have begun without them.
  const before = withChances(turn.chances, turn.chances.length === 0 ? turn.content : '', []);
  return { ...turn, content, chances: withChances(before, text, turn.coming), coming: [] };
}

function withToolPiece(
  calls: readonly ToolCall[],
  piece: Extract<ChatDelta, { type: 'tool' }>,
): ToolCall[] {
  const grown = [...calls];
  // The place is the server's word; a wrong one must not make a list of a billion.
  const place = Number.isInteger(piece.index)
    ? Math.min(Math.max(piece.index, 0), grown.length)
    : 0;
  const before = grown[place] ?? { id: '', name: '', arguments: '' };
  grown[place] = {
    id: before.id || piece.id,
    name: before.name + piece.name,
    arguments: before.arguments + piece.arguments,
  };
  return grown;
}

/** Whether the stream ended as a complete answer does. */
export function isComplete(turn: Turn): boolean {
  return turn.failure === '' && (turn.finish !== '' || turn.isDone);
}

/** Tokens so far: the server's count when it is known. */
export function tokenCount(turn: Turn): number {
  return turn.usage?.completionTokens ?? turn.pieces;
}

/** Tokens per second between the first and the last token; null before there are two. */
export function decodeRate(turn: Turn): number | null {
  const { firstAt, lastAt } = turn;
  const tokens = tokenCount(turn);
  if (firstAt === null || lastAt === null || lastAt <= firstAt || tokens < 2) return null;
  return ((tokens - 1) * 1000) / (lastAt - firstAt);
}

/** What is kept with the message. */
export function figuresOf(turn: Turn, now: number): TurnFigures {
  const rate = decodeRate(turn);
  const hasThought = turn.reasoning !== '' && turn.firstAt !== null;
  return {
    wallMs: now - turn.startedAt,
    ...(turn.firstAt === null ? {} : { ttftMs: turn.firstAt - turn.startedAt }),
    ...(rate === null ? {} : { tokensPerSecond: rate }),
    ...(turn.queueWaitMs === null ? {} : { queueWaitMs: turn.queueWaitMs }),
    ...(hasThought ? { thinkingMs: (turn.answerAt ?? now) - (turn.firstAt ?? now) } : {}),
    ...(turn.hitPercent === null ? {} : { hitPercent: turn.hitPercent }),
    ...(turn.rssGb === null ? {} : { rssGb: turn.rssGb }),
    ...(turn.usage === null
      ? { completionTokens: turn.pieces }
      : {
          promptTokens: turn.usage.promptTokens,
          completionTokens: turn.usage.completionTokens,
          cachedTokens: turn.usage.cachedTokens,
          reasoningTokens: turn.usage.reasoningTokens,
        }),
  };
}
