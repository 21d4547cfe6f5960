// Conversations by how long ago they were used. Pure.
import type { Conversation } from './conversation';

const GROUPS = ['pinned', 'today', 'yesterday', 'week', 'older'] as const;
export type GroupName = (typeof GROUPS)[number];

export interface Group {
  name: GroupName;
  conversations: Conversation[];
}

const DAY_MS = 86_400_000;

function groupOf(conversation: Conversation, midnight: number): GroupName {
  if (conversation.isPinned) return 'pinned';
  if (conversation.updated >= midnight) return 'today';
  if (conversation.updated >= midnight - DAY_MS) return 'yesterday';
  return conversation.updated >= midnight - 6 * DAY_MS ? 'week' : 'older';
}

/** The groups that have conversations, newest first in each. */
export function groupByAge(conversations: readonly Conversation[], now: number): Group[] {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const sorted = [...conversations].sort((a, b) => b.updated - a.updated);
  return GROUPS.map((name) => ({
    name,
    conversations: sorted.filter((entry) => groupOf(entry, midnight) === name),
  })).filter((group) => group.conversations.length > 0);
}
