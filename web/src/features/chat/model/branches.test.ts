import { describe, expect, it } from 'vitest';
import { messageOf } from '@/testing/messages';
import { newestLeaf, pathTo, siblingsOf, subtreeOf, type MessageTable } from './branches';

// a ─ b ─ c        (c is the newest of all)
//   └ d            (d is newer than b)
const all = [
  messageOf({ id: 'a', parent: null, role: 'user', created: 1 }),
  messageOf({ id: 'b', parent: 'a', created: 2 }),
  messageOf({ id: 'd', parent: 'a', created: 3 }),
  messageOf({ id: 'c', parent: 'b', role: 'user', created: 4 }),
];
const table: MessageTable = Object.fromEntries(all.map((message) => [message.id, message]));
const ids = (messages: { id: string }[]): string[] => messages.map(({ id }) => id);

describe('branches', () => {
  it('lead from the root to the leaf', () => {
    expect(ids(pathTo(table, 'c'))).toEqual(['a', 'b', 'c']);
    expect(ids(pathTo(table, 'd'))).toEqual(['a', 'd']);
    expect(pathTo(table, null)).toEqual([]);
  });

  it('end where a message is missing or a circle closes', () => {
    const broken = { x: messageOf({ id: 'x', parent: 'gone' }) };
    expect(ids(pathTo(broken, 'x'))).toEqual(['x']);
    const circle = { x: messageOf({ id: 'x', parent: 'x' }) };
    expect(ids(pathTo(circle, 'x'))).toEqual(['x']);
  });

  it('are alternatives by age', () => {
    const b = table.b;
    if (b === undefined) throw new Error('no b');
    expect(ids(siblingsOf(table, b))).toEqual(['b', 'd']);
  });

  it('end at the leaf that was spoken in last', () => {
    expect(newestLeaf(table, 'a')).toBe('c');
    expect(newestLeaf(table, 'd')).toBe('d');
  });

  it('have all that follows a message', () => {
    expect(subtreeOf(table, 'b')).toEqual(['b', 'c']);
  });

  it('are followed to their end, however long, and round a circle once', () => {
    const long = Object.fromEntries(
      Array.from({ length: 20_000 }, (_, place) => [
        `${place}`,
        messageOf({ id: `${place}`, parent: place === 0 ? null : `${place - 1}` }),
      ]),
    );
    expect(subtreeOf(long, '0')).toHaveLength(20_000);
    expect(newestLeaf(long, '0')).toBe('19999');
    const circle = {
      x: messageOf({ id: 'x', parent: 'y' }),
      y: messageOf({ id: 'y', parent: 'x' }),
    };
    expect(subtreeOf(circle, 'x')).toEqual(['x', 'y']);
  });
});
