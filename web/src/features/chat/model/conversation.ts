// What a conversation is made of. Messages form a tree: each knows the one it follows, and what is
// shown is the path from the root to the conversation's leaf.
import type { TokenChance } from './token-chances';

export interface Attachment {
  name: string;
  text: string;
}

export interface ToolCall {
  id: string;
  name: string;
  /** JSON as the model wrote it, maybe incomplete. */
  arguments: string;
}

/** Measured figures of one answer; what is not known is left out. */
export interface TurnFigures {
  ttftMs?: number;
  tokensPerSecond?: number;
  promptTokens?: number;
  completionTokens?: number;
  cachedTokens?: number;
  reasoningTokens?: number;
  queueWaitMs?: number;
  thinkingMs?: number;
  wallMs?: number;
  hitPercent?: number;
  rssGb?: number;
  slot?: number;
}

/** `cut`: the server or the page ended it before it was complete. */
export type MessageState = 'done' | 'streaming' | 'stopped' | 'cut';

export interface Message {
  id: string;
  conversation: string;
  parent: string | null;
  role: 'user' | 'assistant';
  content: string;
  reasoning: string;
  toolCalls: ToolCall[];
  attachments: Attachment[];
  state: MessageState;
  /** `stop`, `length`, `tool_calls`, …; empty while unknown. */
  finish: string;
  /** Why it is cut, in the server's words. */
  error: string;
  hasMalformed: boolean;
  figures: TurnFigures;
  /** The content token by token, where the server told how likely each was. */
  chances?: readonly TokenChance[] | undefined;
  model: string;
  created: number;
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  updated: number;
  /** The last message of the branch that is shown. */
  leaf: string | null;
  isPinned: boolean;
  system: string;
  draft: string;
  slot: number | null;
  /** The newest of the oldest messages that are no longer sent, since the context is too small. */
  omittedTo?: string | null | undefined;
}

const MAX_TITLE = 60;

/** The first line of a text, short enough for a list. */
export function titleOf(text: string): string {
  const line = text.trim().split('\n', 1)[0]?.trim() ?? '';
  if (line.length <= MAX_TITLE) return line;
  // not through the middle of a flag, a family or an accented letter
  let short = '';
  for (const { segment } of new Intl.Segmenter().segment(line.slice(0, 2 * MAX_TITLE))) {
    if (short.length + segment.length > MAX_TITLE - 1) break;
    short += segment;
  }
  return `${short.trimEnd()}…`;
}

export function isEmptyAnswer(message: Message): boolean {
  return message.content === '' && message.reasoning === '' && message.toolCalls.length === 0;
}
