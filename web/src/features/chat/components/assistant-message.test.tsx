import { act, render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it } from 'vitest';
import { conversationOf, messageOf } from '@/testing/messages';
import { useChat, addStored } from '../stores/chat-store';
import type { Message } from '../model/conversation';
import { AssistantMessage } from './assistant-message';

function show(part: Partial<Message>): void {
  const message = messageOf({ id: 'a', conversation: 'c', parent: 'q', content: 'Text.', ...part });
  addStored({ conversations: [conversationOf({ id: 'c', leaf: 'a' })], messages: [message] });
  render(<AssistantMessage message={message} isLast />);
}

afterEach(() => act(() => useChat.setState(useChat.getInitialState(), true)));

describe('an answer', () => {
  it.each([
    ['cut off by the server', { state: 'cut' }, ['Continue', 'Retry']],
    ['stopped', { state: 'stopped' }, ['Continue']],
    ['at the token limit', { finish: 'length' }, ['Continue']],
  ] as const)('%s says so and can go on', async (_name, part, buttons) => {
    show(part);
    const note = await screen.findByRole('note');
    for (const name of buttons) expect(note).toContainElement(screen.getByRole('button', { name }));
  });

  it('that is complete has nothing to say but its figures', async () => {
    show({
      figures: { ttftMs: 3000, tokensPerSecond: 9.5, promptTokens: 19, completionTokens: 72 },
    });
    expect(await screen.findByText('Text.')).toBeInTheDocument();
    expect(screen.queryByRole('note')).toBeNull();
    expect(screen.getByText('TTFT 3.0 s')).toBeInTheDocument();
    expect(screen.getByText('9.5 tok/s')).toBeInTheDocument();
  });

  it('in which a part was broken keeps its text and tells', async () => {
    show({ hasMalformed: true });
    expect(await screen.findByText('Text.')).toBeInTheDocument();
    expect(screen.getByRole('note')).toHaveTextContent('could not be read');
    expect(screen.queryByRole('button', { name: 'Continue' })).toBeNull();
  });

  it('hides its thoughts once it began, until they are asked for', async () => {
    show({ reasoning: 'Hm, let me see.', figures: { thinkingMs: 2500 } });
    expect(screen.queryByText('Hm, let me see.')).toBeNull();
    await userEvent.click(screen.getByRole('button', { name: /Thought for 2.50 s/ }));
    expect(screen.getByText('Hm, let me see.')).toBeVisible();
  });

  it('shows its thoughts while they are all there is', () => {
    show({ reasoning: 'Hm', content: '', state: 'streaming' });
    expect(screen.getByText('Hm')).toBeVisible();
    expect(screen.getByRole('article')).toHaveAttribute('aria-busy', 'true');
  });

  it('shows a tool call and that it was not run', () => {
    show({ toolCalls: [{ id: 't', name: 'weather', arguments: '{"city":"Rome"}' }] });
    expect(screen.getByText('weather')).toBeInTheDocument();
    expect(screen.getByText('proposed, not run')).toBeInTheDocument();
  });
});
