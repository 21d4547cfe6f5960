// Conversations as files: our JSON, lists of OpenAI-style messages, Markdown. Pure.
import * as z from 'zod/mini';
import { newId } from '@/lib/ids';
import { pathTo, type MessageTable } from './branches';
import { titleOf, type Conversation, type Message } from './conversation';

export const FORMAT = 'coli-conversations';
export const FORMAT_VERSION = 1;

export interface Bundle {
  conversations: Conversation[];
  messages: Message[];
}

const message = z.object({
  id: z.string(),
  conversation: z.string(),
  parent: z.nullable(z.string()),
  role: z.enum(['user', 'assistant']),
  content: z.string(),
  reasoning: z.catch(z.string(), ''),
  toolCalls: z.catch(
    z.array(z.object({ id: z.string(), name: z.string(), arguments: z.string() })),
    [],
  ),
  attachments: z.catch(z.array(z.object({ name: z.string(), text: z.string() })), []),
  // what was growing when it was exported grows no more
  state: z.pipe(
    z.catch(z.enum(['done', 'streaming', 'stopped', 'cut']), 'done'),
    z.transform((state) => (state === 'streaming' ? ('cut' as const) : state)),
  ),
  finish: z.catch(z.string(), ''),
  error: z.catch(z.string(), ''),
  hasMalformed: z.catch(z.boolean(), false),
  figures: z.catch(z.record(z.string(), z.number().check(z.gte(0), z.lte(1e12))), {}),
  chances: z.catch(
    z.optional(
      z.array(
        z.object({
          text: z.string(),
          chance: z.nullable(z.number()),
          others: z.array(z.object({ text: z.string(), chance: z.number() })),
        }),
      ),
    ),
    undefined,
  ),
  model: z.catch(z.string(), ''),
  created: z.catch(z.number(), 0),
});

const conversation = z.object({
  id: z.string(),
  title: z.string(),
  created: z.number(),
  updated: z.number(),
  leaf: z.nullable(z.string()),
  isPinned: z.catch(z.boolean(), false),
  system: z.catch(z.string(), ''),
  draft: z.catch(z.string(), ''),
  slot: z.catch(z.nullable(z.number()), null),
  omittedTo: z.catch(z.optional(z.nullable(z.string())), null),
});

const ours = z.object({
  format: z.literal(FORMAT),
  version: z.literal(FORMAT_VERSION),
  conversations: z.array(conversation),
  messages: z.array(message),
});

// Text, or parts of which those of text are taken; an answer of tool calls alone has none.
const words = z.pipe(
  z.union([z.string(), z.null(), z.array(z.object({ text: z.catch(z.string(), '') }))]),
  z.transform((content) =>
    typeof content === 'string' ? content : (content ?? []).map(({ text }) => text).join(''),
  ),
);
const wire = z.array(z.object({ role: z.string(), content: words }));
const foreign = z.union([wire, z.object({ messages: wire })]);

export function toJson(bundle: Bundle): string {
  return JSON.stringify({ format: FORMAT, version: FORMAT_VERSION, ...bundle }, null, 1);
}

/** The conversations of a file. Throws an Error that says what is wrong with it. */
export function fromJson(text: string, now: number): Bundle {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error('not JSON');
  }
  const own = ours.safeParse(data);
  if (own.success) {
    return withLeaves(own.data.conversations, own.data.messages);
  }
  const other = foreign.safeParse(data);
  if (other.success) {
    return fromWire(Array.isArray(other.data) ? other.data : other.data.messages, now);
  }
  const issue = own.error.issues[0];
  throw new Error([...(issue?.path ?? []), issue?.message ?? 'unknown format'].join(' '));
}

/** A conversation whose end is not in the file ends with the newest of its messages. */
function withLeaves(conversations: Conversation[], messages: Message[]): Bundle {
  const ends = new Map<string, Map<string, Message>>();
  for (const message of messages) {
    const table = ends.get(message.conversation) ?? new Map<string, Message>();
    ends.set(message.conversation, table.set(message.id, message));
  }
  return {
    conversations: conversations.map((entry) => {
      const table = ends.get(entry.id);
      if (entry.leaf !== null && table?.has(entry.leaf)) return entry;
      const newest = [...(table?.values() ?? [])].sort((a, b) => a.created - b.created).at(-1);
      return { ...entry, leaf: newest?.id ?? null };
    }),
    messages,
  };
}

function fromWire(lines: z.infer<typeof wire>, now: number): Bundle {
  const id = newId();
  const messages: Message[] = [];
  for (const { role, content } of lines) {
    if (role !== 'user' && role !== 'assistant') continue;
    messages.push({
      id: newId(),
      conversation: id,
      parent: messages.at(-1)?.id ?? null,
      role,
      content,
      reasoning: '',
      toolCalls: [],
      attachments: [],
      state: 'done',
      finish: '',
      error: '',
      hasMalformed: false,
      figures: {},
      model: '',
      created: now + messages.length,
    });
  }
  if (messages.length === 0) throw new Error('no messages of a user or an assistant');
  const entry: Conversation = {
    id,
    title: titleOf(messages[0]?.content ?? ''),
    created: now,
    updated: now,
    leaf: messages.at(-1)?.id ?? null,
    isPinned: false,
    system: lines.find(({ role }) => role === 'system')?.content ?? '',
    draft: '',
    slot: null,
  };
  return { conversations: [entry], messages };
}

/** The branch that is shown, as a document. */
export function toMarkdown(
  entry: Conversation,
  messages: MessageTable,
  names: { user: string; assistant: string },
): string {
  const parts = pathTo(messages, entry.leaf).map(({ role, content, attachments }) => {
    const files = attachments.map(({ name }) => `- ${name}\n`).join('');
    return `## ${names[role]}\n\n${files === '' ? '' : `${files}\n`}${content}\n`;
  });
  return [`# ${entry.title}\n`, ...parts].join('\n');
}
