// Runs turns: builds the request, follows the stream, keeps the message up to date, tries again when
// the server asks to wait. One turn per conversation; several conversations may wait in the queue.
import { currentEndpoint, useConnection } from '@/lib/connection/connection-store';
import { RequestError } from '@/lib/api-client';
import { newId } from '@/lib/ids';
import { Paced } from '@/lib/paced';
import { TICK_MS } from '@/lib/ticks';
import { withoutKey } from '@/lib/without-key';
import { addToSession } from '@/lib/telemetry/session-totals';
import { telemetryFeed } from '@/lib/telemetry/telemetry-feed';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { streamChat, type ChatBody } from '../api/stream-chat';
import { pathTo } from '../model/branches';
import { isEmptyAnswer, type Message } from '../model/conversation';
import { sentFrom } from '../model/omission';
import { buildRequest, type ServerFeatures } from '../model/request';
import { useSampling } from '../model/sampling';
import { chooseSlot } from '../model/slots';
import { applyDelta, figuresOf, isComplete, startTurn, tokenCount, type Turn } from '../model/turn';
import { noteChances, refusesChances } from './chance-support';
import {
  catchUp,
  changeConversation,
  putMessage,
  removeMessage,
  saveNow,
  useChat,
  type Failure,
} from './chat-store';

const LEAST_FRAME_MS = TICK_MS / 2; // so that it is done at every moment that the page shares
const MAX_RETRIES = 3;
const USUAL_RETRY_S = 2;
const LONGEST_RETRY_S = 600; // who is to wait longer is told so instead
const running = new Map<string, AbortController>();

export function stopTurn(conversation: string): void {
  running.get(conversation)?.abort();
}

export function stopAllTurns(): void {
  for (const stop of running.values()) stop.abort();
}

export function serverFeatures(): ServerFeatures {
  const { health, server } = useTelemetry.getState();
  const { models, model } = useConnection.getState();
  const entry = models.find((candidate) => candidate.id === model);
  const isColibri = health?.scheduler !== undefined && server !== 'foreign';
  const isFront = health?.upstream !== undefined;
  return {
    isColibri,
    hasOurEngine: isColibri && !isFront,
    // A server behind chooses its places itself.
    kvSlots: isFront ? 0 : (health?.kv_slots ?? 0),
    maxTokens: entry?.max_output_tokens ?? null,
  };
}

/** A new, empty answer to the message with id `parent`. */
export function answerTo(conversation: string, parent: string): Message {
  return {
    id: newId(),
    conversation,
    parent,
    role: 'assistant',
    content: '',
    reasoning: '',
    toolCalls: [],
    attachments: [],
    state: 'streaming',
    finish: '',
    error: '',
    hasMalformed: false,
    figures: {},
    model: useConnection.getState().model,
    created: Date.now(),
  };
}

/**
 * Fill an answer. A message that has text already is continued. Returns why there is no answer, or
 * null; an answer that stayed empty is removed.
 */
export async function runTurn(answer: Message): Promise<Failure['error'] | null> {
  const id = answer.conversation;
  if (running.has(id)) return null;
  const stop = new AbortController();
  running.set(id, stop);
  setFailure(id, null);
  putMessage({ ...answer, state: 'streaming' }, true);
  const run = new Run(answer, stop.signal);
  try {
    await run.follow(requestFor(answer));
    run.finish(isComplete(run.turn) ? 'done' : 'cut');
    return run.hasText ? null : nothingSaid(run.turn);
  } catch (error) {
    if (stop.signal.aborted) {
      run.finish('stopped');
      return null;
    }
    const failure =
      error instanceof RequestError ? error : new RequestError('network', String(error));
    run.finish('cut', failure.message);
    // Locked since: the page tells so, and where the key goes.
    if (failure.status === 401) void useConnection.getState().probe();
    return run.hasText ? null : failure;
  } finally {
    running.delete(id);
    clearLive(id);
    void saveNow().then(() => catchUp(id));
    telemetryFeed.refresh();
  }
}

/** Why a stream that was taken in brought no word. */
function nothingSaid(turn: Turn): RequestError {
  const { failure, failureCode: code, requestId } = turn;
  return failure === ''
    ? new RequestError('empty', '', { requestId })
    : new RequestError('status', failure, { status: 500, code, requestId });
}

export function setFailure(conversation: string, failure: Failure | null): void {
  useChat.setState((state) => {
    const others = withoutKey(state.failures, conversation);
    return { failures: failure === null ? others : { ...others, [conversation]: failure } };
  });
}

function clearLive(conversation: string): void {
  useChat.setState((state) => ({ live: withoutKey(state.live, conversation) }));
}

/** What a server refused, which is left out when it is asked once more. */
interface Refused {
  limit: boolean;
  chances: boolean;
}

function requestFor(answer: Message): (refused: Refused) => ChatBody {
  const id = answer.conversation;
  const { conversations, messages } = useChat.getState();
  const features = serverFeatures();
  const table = messages[id] ?? {};
  const whole = pathTo(table, answer.parent);
  const path = whole.slice(sentFrom(whole, conversations[id]?.omittedTo));
  let slot: number | null = null;
  if (features.kvSlots > 0) {
    const choice = chooseSlot(Object.values(conversations), id, features.kvSlots);
    slot = choice.slot;
    if (choice.evicted !== null) changeConversation(choice.evicted, { slot: null });
    changeConversation(id, { slot });
  }
  const { sampling } = useSampling.getState();
  return (refused) =>
    buildRequest({
      model: useConnection.getState().model,
      system: conversations[id]?.system ?? '',
      history: answer.content === '' ? path : [...path, answer],
      sampling,
      features,
      slot,
      hasOldLimit: refused.limit,
      hasChances: sampling.isTinted && !refused.chances,
    });
}

class Run {
  turn: Turn;
  private readonly answer: Message;
  private readonly signal: AbortSignal;
  private readonly frames = new Paced(() => this.show(), LEAST_FRAME_MS);
  private retry: { at: number; attempt: number; reason: string } | null = null;

  constructor(answer: Message, signal: AbortSignal) {
    this.answer = answer;
    this.signal = signal;
    this.turn = startTurn(Date.now(), continued(answer));
    this.show();
  }

  get hasText(): boolean {
    return this.turn.content !== '' || this.turn.reasoning !== '' || this.turn.toolCalls.length > 0;
  }

  /** Send until the server takes it, and take the stream in. */
  async follow(makeBody: (refused: Refused) => ChatBody): Promise<void> {
    const refused = { limit: false, chances: refusesChances() };
    for (let attempt = 1; ;) {
      const body = makeBody(refused);
      try {
        await streamChat(
          currentEndpoint(),
          body,
          (delta) => {
            this.turn = applyDelta(this.turn, delta, Date.now());
            this.frames.ask();
          },
          this.signal,
        );
        if (body.logprobs === true && this.turn.content !== '') {
          noteChances(this.turn.chances.length > 0 ? 'told' : 'absent');
        }
        return;
      } catch (error) {
        if (!(error instanceof RequestError) || error.kind !== 'status') throw error;
        if (!refused.limit && refuses(error, 'max_completion_tokens')) refused.limit = true;
        else if (body.logprobs === true && refuses(error, 'logprobs')) {
          refused.chances = true;
          noteChances('refused');
        } else if (isTemporary(error) && attempt <= MAX_RETRIES) {
          await this.pause(error, attempt);
          attempt += 1;
        } else throw error;
      }
    }
  }

  finish(state: Message['state'], error = ''): void {
    this.frames.cancel();
    addToSession(this.turn.usage?.promptTokens ?? 0, tokenCount(this.turn));
    const message = {
      ...this.grown(),
      state,
      error: error || this.turn.failure,
      figures: this.figures(),
    };
    const isSame = message.content === this.answer.content;
    if (isEmptyAnswer(message)) void removeMessage(message);
    else if (isSame && this.answer.content !== '') putMessage({ ...this.answer, state, error });
    else putMessage(message);
  }

  private figures(): Message['figures'] {
    const { slot } = useChat.getState().conversations[this.answer.conversation] ?? {};
    const figures = figuresOf(this.turn, Date.now());
    return slot === null || slot === undefined ? figures : { ...figures, slot };
  }

  private grown(): Message {
    const { content, reasoning, toolCalls, chances, finish, hasMalformed } = this.turn;
    return {
      ...this.answer,
      content,
      reasoning,
      toolCalls,
      ...(chances.length === 0 ? {} : { chances }),
      finish,
      hasMalformed,
      state: 'streaming',
    };
  }

  private show(): void {
    if (this.signal.aborted) return;
    const { id, conversation } = this.answer;
    useChat.setState((state) => ({
      live: { ...state.live, [conversation]: { message: id, turn: this.turn, retry: this.retry } },
    }));
    if (this.turn.pieces > 0) putMessage(this.grown());
  }

  private async pause(error: RequestError, attempt: number): Promise<void> {
    const waitMs = (error.retryAfterS ?? USUAL_RETRY_S * attempt) * 1000;
    this.retry = { at: Date.now() + waitMs, attempt, reason: error.message };
    this.show();
    await sleep(waitMs, this.signal);
    this.retry = null;
    this.turn = startTurn(Date.now(), continued(this.answer));
    this.show();
  }
}

/** What an answer that goes on begins with; nothing is generated after a blank at its end. */
function continued(answer: Message): Pick<Message, 'content' | 'reasoning' | 'chances'> {
  const { content, reasoning, chances } = answer;
  return { content: content.trimEnd(), reasoning, chances };
}

/** Whether a server does not know, allow or like a field, each in its own way. */
function refuses(error: RequestError, field: string): boolean {
  const words = `${error.param} ${error.message}`;
  return [400, 403, 422].includes(error.status) && words.includes(field);
}

/** A full server; also one that failed, or whose server behind did, and says when to try again. */
function isTemporary(error: RequestError): boolean {
  if ((error.retryAfterS ?? 0) > LONGEST_RETRY_S) return false;
  return error.status === 429 || (error.status >= 502 && error.retryAfterS !== null);
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new DOMException('stopped', 'AbortError'));
    });
  });
}
