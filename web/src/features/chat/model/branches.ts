// Walking the tree of messages. Pure.
import type { Message } from './conversation';

export type MessageTable = Readonly<Record<string, Message>>;

/** The messages from the root to a leaf. */
export function pathTo(messages: MessageTable, leaf: string | null): Message[] {
  const path: Message[] = [];
  const seen = new Set<string>();
  for (let id = leaf; id !== null && !seen.has(id);) {
    const message = messages[id];
    if (message === undefined) break;
    seen.add(id);
    path.push(message);
    id = message.parent;
  }
  return path.reverse();
}

function byAge(a: Message, b: Message): number {
  return a.created - b.created || (a.id < b.id ? -1 : 1);
}

/** The alternatives at a message's place, itself included, oldest first. */
export function siblingsOf(messages: MessageTable, message: Message): Message[] {
  return Object.values(messages)
    .filter((other) => other.parent === message.parent && other.role === message.role)
    .sort(byAge);
}

/** The end of the branch below a message that was spoken in last. */
export function newestLeaf(messages: MessageTable, id: string): string {
  const parents = new Set(Object.values(messages).map((message) => message.parent));
  const ends = subtreeOf(messages, id).filter((below) => !parents.has(below));
  const newest = ends
    .flatMap((end) => messages[end] ?? [])
    .sort(byAge)
    .at(-1);
  return newest?.id ?? id;
}

/** A message and everything that follows it, however long that is; a circle is gone round once. */
export function subtreeOf(messages: MessageTable, id: string): string[] {
  const followers = new Map<string, string[]>();
  for (const message of Object.values(messages)) {
    if (message.parent === null) continue;
    const others = followers.get(message.parent);
    if (others === undefined) followers.set(message.parent, [message.id]);
    else others.push(message.id);
  }
  const found = new Set([id]);
  for (const above of found) for (const below of followers.get(above) ?? []) found.add(below);
  return [...found];
}
