// Conversations and messages in IndexedDB. Where a browser refuses it, they live as long as the page.
import { openDB, type DBSchema, type IDBPDatabase } from 'idb';
import type { Conversation, Message } from '../model/conversation';

const NAME = 'coli';
const VERSION = 1;

interface Schema extends DBSchema {
  conversations: { key: string; value: Conversation };
  messages: { key: string; value: Message; indexes: { conversation: string } };
}

export interface Stored {
  conversations: Conversation[];
  messages: Message[];
}

let opened: Promise<IDBPDatabase<Schema> | null> | undefined;

function open(): Promise<IDBPDatabase<Schema> | null> {
  opened ??= openOrNull();
  return opened;
}

async function openOrNull(): Promise<IDBPDatabase<Schema> | null> {
  try {
    return await openDB<Schema>(NAME, VERSION, {
      upgrade(database) {
        database.createObjectStore('conversations', { keyPath: 'id' });
        const messages = database.createObjectStore('messages', { keyPath: 'id' });
        messages.createIndex('conversation', 'conversation');
      },
      blocking(_current, _blocked, event) {
        (event.target as IDBDatabase).close();
        opened = undefined;
      },
      // by the browser, e.g. when its data were cleared
      terminated() {
        opened = undefined;
      },
    });
  } catch {
    return null;
  }
}

/** Whether what is said survives the page. */
export async function isPersistent(): Promise<boolean> {
  return (await open()) !== null;
}

export async function loadConversations(): Promise<Conversation[]> {
  return (await (await open())?.getAll('conversations')) ?? [];
}

export async function loadMessages(conversation: string): Promise<Message[]> {
  return (await (await open())?.getAllFromIndex('messages', 'conversation', conversation)) ?? [];
}

export async function loadAll(): Promise<Stored> {
  const database = await open();
  if (database === null) return { conversations: [], messages: [] };
  const [conversations, messages] = await Promise.all([
    database.getAll('conversations'),
    database.getAll('messages'),
  ]);
  return { conversations, messages };
}

/** Write, replacing what has the same id. */
export async function save(stored: Partial<Stored>): Promise<void> {
  const database = await open();
  if (database === null) return;
  const change = database.transaction(['conversations', 'messages'], 'readwrite');
  await Promise.all([
    ...(stored.conversations ?? []).map((entry) => change.objectStore('conversations').put(entry)),
    ...(stored.messages ?? []).map((entry) => change.objectStore('messages').put(entry)),
    change.done,
  ]);
}

export async function removeMessages(ids: readonly string[]): Promise<void> {
  const database = await open();
  if (database === null) return;
  const change = database.transaction('messages', 'readwrite');
  await Promise.all([...ids.map((id) => change.store.delete(id)), change.done]);
}

export async function removeConversation(id: string): Promise<void> {
  const database = await open();
  if (database === null) return;
  const messages = await database.getAllKeysFromIndex('messages', 'conversation', id);
  const change = database.transaction(['conversations', 'messages'], 'readwrite');
  await Promise.all([
    change.objectStore('conversations').delete(id),
    ...messages.map((key) => change.objectStore('messages').delete(key)),
    change.done,
  ]);
}

export async function removeAll(): Promise<void> {
  const database = await open();
  if (database === null) return;
  await Promise.all([database.clear('conversations'), database.clear('messages')]);
}
