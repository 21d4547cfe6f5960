import { describe, expect, it } from 'vitest';
import { conversationOf, messageOf } from '@/testing/messages';
import { fromJson, toJson, toMarkdown } from './transfer-format';

const bundle = {
  conversations: [conversationOf({ id: 'c', title: 'T', leaf: 'n', slot: 1 })],
  messages: [
    messageOf({ id: 'm', role: 'user', content: 'hi', attachments: [{ name: 'f', text: 'x' }] }),
    messageOf({ id: 'n', parent: 'm', content: 'yo', figures: { ttftMs: 5 }, reasoning: 'r' }),
  ],
};

describe('exported conversations', () => {
  it('come back as they were', () => {
    expect(fromJson(toJson(bundle), 7)).toEqual(bundle);
  });

  it('are read from a list of OpenAI-style messages', () => {
    const list = [
      { role: 'system', content: 'be kind' },
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'yo' },
    ];
    for (const data of [list, { messages: list }]) {
      const read = fromJson(JSON.stringify(data), 7);
      expect(read.conversations).toMatchObject([{ title: 'hi', system: 'be kind', created: 7 }]);
      expect(read.messages.map(({ content }) => content)).toEqual(['hi', 'yo']);
      expect(read.messages[1]?.parent).toBe(read.messages[0]?.id);
      expect(read.conversations[0]?.leaf).toBe(read.messages[1]?.id);
    }
  });

  it('take the texts of messages that are made of parts', () => {
    const parts = [{ type: 'text', text: 'look' }, { type: 'image_url' }];
    const list = [
      { role: 'user', content: parts },
      { role: 'assistant', content: null, tool_calls: [] },
    ];
    const { messages } = fromJson(JSON.stringify(list), 7);
    expect(messages.map(({ content }) => content)).toEqual(['look', '']);
  });

  it('do not grow any more, and end where there is a message', () => {
    const told = { ...bundle.messages[1], state: 'streaming', figures: { ttftMs: -1 } };
    const lost = { ...bundle.conversations[0], leaf: 'gone' };
    const data = { ...bundle, conversations: [lost], messages: [bundle.messages[0], told] };
    const read = fromJson(JSON.stringify({ format: 'coli-conversations', version: 1, ...data }), 7);
    expect(read.messages[1]).toMatchObject({ state: 'cut', figures: {} });
    expect(read.messages.map(({ id }) => id)).toContain(read.conversations[0]?.leaf);
  });

  it.each([
    ['{', 'not JSON'],
    ['[]', 'no messages'],
    ['{"format":"coli-conversations","version":1,"conversations":[],"messages":[{}]}', 'messages'],
    ['7', 'Invalid input'],
  ])('are refused with the reason: %s', (text, reason) => {
    expect(() => fromJson(text, 7)).toThrow(reason);
  });

  it('become a document of the branch that is shown', () => {
    const messages = Object.fromEntries(bundle.messages.map((message) => [message.id, message]));
    const [conversation] = bundle.conversations;
    if (conversation === undefined) throw new Error('no conversation');
    const text = toMarkdown(conversation, messages, { user: 'You', assistant: 'Answer' });
    expect(text).toBe('# T\n\n## You\n\n- f\n\nhi\n\n## Answer\n\nyo\n');
  });
});
