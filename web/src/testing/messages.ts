// Messages and conversations for tests.
import type { Conversation, Message } from '@/features/chat/model/conversation';

export function messageOf(part: Partial<Message>): Message {
  return {
    id: 'm',
    conversation: 'c',
    parent: null,
    role: 'assistant',
    content: '',
    reasoning: '',
    toolCalls: [],
    attachments: [],
    state: 'done',
    finish: 'stop',
    error: '',
    hasMalformed: false,
    figures: {},
    model: '',
    created: 0,
    ...part,
  };
}

export function conversationOf(part: Partial<Conversation>): Conversation {
  return {
    id: 'c',
    title: '',
    created: 0,
    updated: 0,
    leaf: null,
    isPinned: false,
    system: '',
    draft: '',
    slot: null,
    ...part,
  };
}
