// Conversations in memory, written behind to the database. Knows nothing of requests; those are made
// by turn-runner.ts.
import { create } from 'zustand';
import { newId } from '@/lib/ids';
import { withoutKey } from '@/lib/without-key';
import type { RequestError } from '@/lib/api-client';
import { newestLeaf, subtreeOf, type MessageTable } from '../model/branches';
import { titleOf, type Attachment, type Conversation, type Message } from '../model/conversation';
import type { Turn } from '../model/turn';
import * as database from './conversation-db';

/** A turn that is running; `retry` while it waits to be sent again. */
export interface LiveTurn {
  message: string;
  turn: Turn;
  retry: { at: number; attempt: number; reason: string } | null;
}

/** A request that brought no answer; shown above the composer until the next one. */
export interface Failure {
  error: RequestError;
  /** Whether what was asked went back into the composer. */
  hasDraft: boolean;
}

export interface ChatState {
  isLoaded: boolean;
  isPersistent: boolean;
  conversations: Readonly<Record<string, Conversation>>;
  /** By conversation, then id; only of conversations that were opened. */
  messages: Readonly<Record<string, MessageTable>>;
  live: Readonly<Record<string, LiveTurn>>;
  failures: Readonly<Record<string, Failure>>;
  /** Files that wait in the composer. */
  attachments: Readonly<Record<string, Attachment[]>>;
}

/** The key of what belongs to the conversation that does not exist yet. */
export const NEW = 'new';

export const useChat = create<ChatState>()(() => ({
  isLoaded: false,
  isPersistent: true,
  conversations: {},
  messages: {},
  live: {},
  failures: {},
  attachments: {},
}));

const WRITE_DELAY_MS = 450;
const unsaved = { conversations: new Set<string>(), messages: new Map<string, string>() };
let writing: ReturnType<typeof setTimeout> | undefined;
const channel = 'BroadcastChannel' in window ? new BroadcastChannel('coli-chat') : null;

function saveSoon(): void {
  writing ??= setTimeout(() => void saveNow(), WRITE_DELAY_MS);
}

/** Write what changed; also called when the page is left. */
export async function saveNow(): Promise<void> {
  clearTimeout(writing);
  writing = undefined;
  const state = useChat.getState();
  const conversations = [...unsaved.conversations].flatMap((id) => state.conversations[id] ?? []);
  const messages = [...unsaved.messages].flatMap(
    ([id, conversation]) => state.messages[conversation]?.[id] ?? [],
  );
  const touched = new Set([...unsaved.conversations, ...unsaved.messages.values()]);
  unsaved.conversations.clear();
  unsaved.messages.clear();
  try {
    await database.save({ conversations, messages });
    if (!state.isPersistent && (await database.isPersistent())) {
      useChat.setState({ isPersistent: true });
    }
  } catch {
    // Full, mostly. Kept for the next time: a message without those before it would be lost, too.
    for (const { id } of conversations) unsaved.conversations.add(id);
    for (const { id, conversation } of messages) unsaved.messages.set(id, conversation);
    useChat.setState({ isPersistent: false });
    return;
  }
  for (const id of touched) channel?.postMessage(id);
}

export async function loadChat(): Promise<void> {
  const [conversations, isPersistent] = await Promise.all([
    database.loadConversations(),
    database.isPersistent(),
  ]);
  useChat.setState((state) => ({
    isLoaded: true,
    isPersistent,
    conversations: {
      ...Object.fromEntries(conversations.map((entry) => [entry.id, entry])),
      ...state.conversations,
    },
  }));
  channel?.addEventListener('message', (event) => void reloadFromOtherTab(String(event.data)));
  window.addEventListener('pagehide', () => void saveNow());
}

/** Changed by another tab while a turn ran here; read once it ended. */
const missed = new Set<string>();

/** Take in what other tabs wrote into a conversation while its turn ran. */
export async function catchUp(id: string): Promise<void> {
  if (missed.delete(id)) await reloadFromOtherTab(id);
}

async function reloadFromOtherTab(id: string): Promise<void> {
  if (useChat.getState().live[id] !== undefined) {
    missed.add(id);
    return;
  }
  const all = await database.loadConversations();
  const found = all.find((entry) => entry.id === id);
  useChat.setState((state) => {
    const others = withoutKey(state.conversations, id);
    return { conversations: found === undefined ? others : { ...others, [id]: found } };
  });
  if (useChat.getState().messages[id] !== undefined) await openConversation(id, true);
}

/** Read the messages of a conversation, once. What a closed page left unfinished is marked. */
export async function openConversation(id: string, isAgain = false): Promise<void> {
  if (!isAgain && useChat.getState().messages[id] !== undefined) return;
  const stored = await database.loadMessages(id);
  const messages = stored.map((message) =>
    message.state === 'streaming' && !isAgain ? { ...message, state: 'cut' as const } : message,
  );
  useChat.setState((state) => ({
    messages: {
      ...state.messages,
      [id]: {
        ...Object.fromEntries(messages.map((message) => [message.id, message])),
        ...(isAgain ? {} : state.messages[id]),
      },
    },
  }));
  // Told to other tabs, too. If it grows in one of them, that one writes over it.
  const cut = messages.filter((message, index) => message !== stored[index]);
  for (const message of cut) unsaved.messages.set(message.id, id);
  if (cut.length > 0) saveSoon();
}

export function createConversation(part: Partial<Conversation> = {}): Conversation {
  const now = Date.now();
  const conversation: Conversation = {
    id: newId(),
    title: '',
    created: now,
    updated: now,
    leaf: null,
    isPinned: false,
    system: '',
    draft: '',
    slot: null,
    ...part,
  };
  useChat.setState((state) => ({
    conversations: { ...state.conversations, [conversation.id]: conversation },
    messages: { ...state.messages, [conversation.id]: {} },
  }));
  unsaved.conversations.add(conversation.id);
  void saveNow();
  return conversation;
}

export function changeConversation(id: string, part: Partial<Conversation>): void {
  const conversation = useChat.getState().conversations[id];
  if (conversation === undefined) return;
  useChat.setState((state) => ({
    conversations: { ...state.conversations, [id]: { ...conversation, ...part } },
  }));
  unsaved.conversations.add(id);
  saveSoon();
}

/** Forget a conversation; returns how to bring it back. */
export async function deleteConversation(id: string): Promise<() => void> {
  await openConversation(id);
  const { conversations, messages } = useChat.getState();
  const conversation = conversations[id];
  const table = messages[id] ?? {};
  useChat.setState((state) => ({
    conversations: withoutKey(state.conversations, id),
    messages: withoutKey(state.messages, id),
  }));
  await database.removeConversation(id);
  channel?.postMessage(id);
  return () => {
    if (conversation === undefined) return;
    addStored({ conversations: [conversation], messages: Object.values(table) });
  };
}

export async function deleteAllConversations(): Promise<void> {
  const ids = Object.keys(useChat.getState().conversations);
  useChat.setState({ conversations: {}, messages: {}, failures: {}, attachments: {} });
  unsaved.conversations.clear();
  unsaved.messages.clear();
  await database.removeAll();
  for (const id of ids) channel?.postMessage(id);
}

/** Put conversations with their messages in, e.g. imported ones. */
export function addStored(stored: database.Stored): void {
  useChat.setState((state) => {
    const tables: Record<string, Record<string, Message>> = {};
    // What was said since is kept beside what comes back.
    for (const { id } of stored.conversations) tables[id] = { ...state.messages[id] };
    for (const message of stored.messages) {
      const table = tables[message.conversation];
      if (table !== undefined) table[message.id] = message;
    }
    return {
      conversations: {
        ...state.conversations,
        ...Object.fromEntries(stored.conversations.map((entry) => [entry.id, entry])),
      },
      messages: { ...state.messages, ...tables },
    };
  });
  for (const { id } of stored.conversations) unsaved.conversations.add(id);
  for (const { id, conversation } of stored.messages) unsaved.messages.set(id, conversation);
  saveSoon();
}

/** Add or replace a message; with `isLeaf` it becomes the end of what is shown. */
export function putMessage(message: Message, isLeaf = false): void {
  // Deleted while its answer grew: nothing of it is to come back.
  if (useChat.getState().conversations[message.conversation] === undefined) return;
  useChat.setState((state) => ({
    messages: {
      ...state.messages,
      [message.conversation]: { ...state.messages[message.conversation], [message.id]: message },
    },
  }));
  unsaved.messages.set(message.id, message.conversation);
  if (isLeaf) {
    changeConversation(message.conversation, { leaf: message.id, updated: Date.now() });
  } else saveSoon();
}

/** Remove a message and all that follow; what is shown ends before it, or at its newest sibling. */
export async function removeMessage(message: Message): Promise<void> {
  const table = useChat.getState().messages[message.conversation] ?? {};
  const gone = new Set(subtreeOf(table, message.id));
  const kept = Object.fromEntries(Object.entries(table).filter(([id]) => !gone.has(id)));
  useChat.setState((state) => ({
    messages: { ...state.messages, [message.conversation]: kept },
  }));
  for (const id of gone) unsaved.messages.delete(id);
  const leaf = message.parent === null ? newestRoot(kept) : newestLeaf(kept, message.parent);
  changeConversation(message.conversation, { leaf });
  await database.removeMessages([...gone]);
}

function newestRoot(table: MessageTable): string | null {
  const roots = Object.values(table).filter((message) => message.parent === null);
  const leaves = roots.flatMap((root) => table[newestLeaf(table, root.id)] ?? []);
  return leaves.sort((a, b) => a.created - b.created).at(-1)?.id ?? null;
}

export function showBranch(conversation: string, message: string): void {
  const table = useChat.getState().messages[conversation] ?? {};
  changeConversation(conversation, { leaf: newestLeaf(table, message) });
}

export function nameAfter(conversation: Conversation, text: string): void {
  if (conversation.title === '') changeConversation(conversation.id, { title: titleOf(text) });
}
