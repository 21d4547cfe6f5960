// What is sent to the server. Pure. Extensions go only to servers that are known to have them.
import type { ChatBody } from '../api/stream-chat';
import type { Attachment, Message } from './conversation';
import { DEFAULT_SAMPLING, type Sampling } from './sampling';

export interface ServerFeatures {
  /** A colibrì server: knows `enable_thinking` and telemetry. */
  isColibri: boolean;
  /** Its answers come from an engine of ours, not from a server behind. */
  hasOurEngine: boolean;
  /** KV slots, 0 if the server tells of none. */
  kvSlots: number;
  /** Most tokens of an answer, if the server tells. */
  maxTokens: number | null;
}

interface WireMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export interface RequestParts {
  model: string;
  system: string;
  history: readonly Message[];
  sampling: Sampling;
  features: ServerFeatures;
  slot: number | null;
  /** The older name of the token limit, for servers that know no other. */
  hasOldLimit?: boolean;
  /** The server is asked how likely each token was. */
  hasChances?: boolean;
}

/** Alternatives of a token that are asked for. */
const NUM_OTHERS = 5;

export function buildRequest(parts: RequestParts): ChatBody {
  const { sampling, features } = parts;
  const stop = sampling.stop.filter((text) => text !== '');
  const limit = effectiveMaxTokens(sampling, features);
  return {
    model: parts.model,
    messages: wireMessages(parts.system, parts.history),
    stream: true,
    stream_options: { include_usage: true },
    temperature: sampling.temperature,
    ...(sampling.topP === null ? {} : { top_p: sampling.topP }),
    ...(stop.length === 0 ? {} : { stop }),
    ...(limit === null
      ? {}
      : parts.hasOldLimit
        ? { max_tokens: limit }
        : { max_completion_tokens: limit }),
    ...(parts.hasChances ? { logprobs: true, top_logprobs: NUM_OTHERS } : {}),
    ...(features.isColibri
      ? { enable_thinking: sampling.isThinking, x_colibri_telemetry: true }
      : {}),
    ...(features.kvSlots > 0 && parts.slot !== null ? { cache_slot: parts.slot } : {}),
  };
}

/** The limit to send; null leaves it to an engine that may refuse more than its context holds. */
function effectiveMaxTokens(sampling: Sampling, features: ServerFeatures): number | null {
  if (!features.hasOurEngine && sampling.maxTokens === DEFAULT_SAMPLING.maxTokens) return null;
  return features.maxTokens === null
    ? sampling.maxTokens
    : Math.min(sampling.maxTokens, features.maxTokens);
}

function wireMessages(system: string, history: readonly Message[]): WireMessage[] {
  const messages: WireMessage[] = history
    .filter((message) => message.role === 'user' || message.content !== '')
    .map((message, index, all) => ({
      role: message.role,
      // A trailing answer is to be continued; template and tokens rarely go on after a blank.
      content:
        message.role === 'user'
          ? userText(message.content, message.attachments)
          : index === all.length - 1
            ? message.content.trimEnd()
            : message.content,
    }));
  return system.trim() === ''
    ? messages
    : [{ role: 'system', content: system.trim() }, ...messages];
}

/** A user's words with the files in front, each in a fence longer than any inside it. */
export function userText(text: string, attachments: readonly Attachment[]): string {
  const files = attachments.map(({ name, text: content }) => {
    const longest = Math.max(2, ...(content.match(/`{3,}/g) ?? []).map((run) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `File: ${name}\n${fence}\n${content}\n${fence}`;
  });
  return [...files, text].filter((part) => part !== '').join('\n\n');
}
