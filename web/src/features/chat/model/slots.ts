// Which KV slot a conversation asks for. Pure.
import type { Conversation } from './conversation';

export interface SlotChoice {
  slot: number;
  /** Whoever had it before has to be read anew when it goes on. */
  evicted: string | null;
}

/** A conversation keeps its slot; a new one gets a free one, else the one unused for longest. */
export function chooseSlot(
  conversations: readonly Conversation[],
  id: string,
  kvSlots: number,
): SlotChoice {
  const own = conversations.find((conversation) => conversation.id === id);
  if (own?.slot !== null && own?.slot !== undefined && own.slot < kvSlots) {
    return { slot: own.slot, evicted: null };
  }
  const holders = conversations.filter(
    (other) => other.id !== id && other.slot !== null && other.slot < kvSlots,
  );
  const taken = new Set(holders.map((holder) => holder.slot));
  for (let slot = 0; slot < kvSlots; slot += 1) {
    if (!taken.has(slot)) return { slot, evicted: null };
  }
  const oldest = holders.reduce((a, b) => (b.updated < a.updated ? b : a));
  return { slot: oldest.slot ?? 0, evicted: oldest.id };
}
