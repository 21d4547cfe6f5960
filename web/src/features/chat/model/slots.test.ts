import { describe, expect, it } from 'vitest';
import { conversationOf } from '@/testing/messages';
import { chooseSlot } from './slots';

const holder = (id: string, slot: number | null, updated: number) =>
  conversationOf({ id, slot, updated });

describe('chooseSlot', () => {
  it('leaves a conversation its slot', () => {
    expect(chooseSlot([holder('a', 2, 1)], 'a', 4)).toEqual({ slot: 2, evicted: null });
  });

  it('gives a new one the first that is free', () => {
    const all = [holder('a', 0, 1), holder('b', 2, 2), holder('c', null, 3)];
    expect(chooseSlot(all, 'c', 4)).toEqual({ slot: 1, evicted: null });
  });

  it('takes the slot that was unused for longest when none is free', () => {
    const all = [holder('a', 0, 5), holder('b', 1, 2), holder('c', null, 9)];
    expect(chooseSlot(all, 'c', 2)).toEqual({ slot: 1, evicted: 'b' });
  });

  it('forgets slots that a server no longer has', () => {
    expect(chooseSlot([holder('a', 3, 1)], 'a', 1)).toEqual({ slot: 0, evicted: null });
  });
});
