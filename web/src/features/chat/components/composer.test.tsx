import { act, cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { useConnection } from '@/lib/connection/connection-store';
import { conversationOf } from '@/testing/messages';
import { addStored, useChat } from '../stores/chat-store';
import { stopTurn } from '../stores/turn-runner';
import { Composer } from './composer';

const sent: unknown[] = [];

beforeEach(() => {
  sent.length = 0;
  vi.stubGlobal('matchMedia', () => ({ matches: true }));
  vi.stubGlobal(
    'fetch',
    (_url: string, { body, signal }: { body: string; signal: AbortSignal }) => {
      sent.push(JSON.parse(body));
      return new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
    },
  );
  useConnection.setState({ model: 'm' });
  addStored({ conversations: [conversationOf({ id: 'c' })], messages: [] });
  render(<Composer id="c" onSent={vi.fn()} />);
});
afterEach(async () => {
  cleanup(); // while it still has what it asks the browser for
  stopTurn('c');
  await vi.waitFor(() => expect(useChat.getState().live).toEqual({}));
  vi.unstubAllGlobals();
  act(() => useChat.setState(useChat.getInitialState(), true));
});

function field(): HTMLElement {
  return screen.getByLabelText('Message');
}

function type(text: string): void {
  fireEvent.change(field(), { target: { value: text } });
}

describe('the composer', () => {
  it('sends by Enter, and breaks the line with Shift', () => {
    type('one\ntwo');
    fireEvent.keyDown(field(), { key: 'Enter', shiftKey: true });
    expect(sent).toEqual([]);
    fireEvent.keyDown(field(), { key: 'Enter' });
    expect(sent).toMatchObject([{ messages: [{ role: 'user', content: 'one\ntwo' }] }]);
    expect(field()).toHaveValue('');
  });

  it('sends nothing while characters are composed', () => {
    type('ni');
    fireEvent.keyDown(field(), { key: 'Enter', isComposing: true });
    expect(sent).toEqual([]);
    expect(field()).toHaveValue('ni');
  });

  it('sends no blanks, and not without a model', () => {
    const button = screen.getByLabelText('Send');
    type('  ');
    expect(button).toBeDisabled();
    type('hi');
    expect(button).toBeEnabled();
    act(() => useConnection.setState({ model: '' }));
    expect(button).toBeDisabled();
  });

  it('stops where it sent, and is written in again', async () => {
    type('hi');
    fireEvent.keyDown(field(), { key: 'Enter' });
    fireEvent.click(screen.getByLabelText('Stop'));
    expect(await screen.findByLabelText('Send')).toBeInTheDocument();
    expect(field()).toHaveFocus();
  });

  it('takes a text file as a part of the message', async () => {
    const file = { name: 'a.py', size: 5, text: () => Promise.resolve('x = 1') };
    const picker = document.querySelector('input[type=file]');
    if (picker === null) throw new Error('no picker of files');
    Object.defineProperty(picker, 'files', { value: [file] });
    fireEvent.change(picker);
    expect(await screen.findByText('a.py')).toBeInTheDocument();
    type('why?');
    fireEvent.keyDown(field(), { key: 'Enter' });
    expect(sent).toMatchObject([
      { messages: [{ content: 'File: a.py\n```\nx = 1\n```\n\nwhy?' }] },
    ]);
  });
});
