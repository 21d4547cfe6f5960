import { act, fireEvent, render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it } from 'vitest';
import { messageOf } from '@/testing/messages';
import { DEFAULT_SAMPLING, useSampling } from '../model/sampling';
import type { TokenChance } from '../model/token-chances';
import { AssistantMessage } from './assistant-message';
import TokenText from './token-text';

const PIECES: TokenChance[] = [
  { text: 'The', chance: 0.9, others: [{ text: 'The', chance: 0.9 }] },
  {
    text: ' cat',
    chance: 0.5,
    others: [
      { text: ' cat', chance: 0.5 },
      { text: ' dog', chance: 0.3 },
    ],
  },
  { text: ' sat', chance: 0.85, others: [] },
  { text: ' down', chance: 0.1, others: [{ text: ' up', chance: 0.6 }] },
];

afterEach(() => act(() => useSampling.getState().change(DEFAULT_SAMPLING)));

function tints(): (string | undefined)[] {
  return [...document.querySelectorAll<HTMLElement>('[data-token]')].map(
    ({ dataset }) => dataset.tint,
  );
}

describe('an answer token by token', () => {
  it('is tinted by the bounds of the settings', () => {
    render(<TokenText pieces={PIECES} />);
    expect(tints()).toEqual(['sure', 'unsure', 'sure', 'doubtful']);
    act(() => useSampling.getState().change({ tintSure: 0.5, tintDoubtful: 0 }));
    expect(tints()).toEqual(['sure', 'sure', 'sure', 'unsure']);
  });

  it('tells the alternatives of the token under the pointer', () => {
    render(<TokenText pieces={PIECES} />);
    fireEvent.pointerMove(screen.getByText('cat'));
    expect(screen.getByText('␣dog').parentElement).toHaveTextContent('30%');
    expect(document.querySelector('[data-taken=true]')).toHaveTextContent('␣cat50%');
    fireEvent.pointerLeave(screen.getByRole('group'));
    expect(screen.queryByText('␣dog')).toBeNull();
  });

  it('lists the token that was taken where it is none of the likeliest', () => {
    render(<TokenText pieces={PIECES} />);
    fireEvent.pointerMove(screen.getByText('down'));
    expect(document.querySelector('[data-taken=true]')).toHaveTextContent('␣down10%');
    expect(screen.getByText('␣up').parentElement).toHaveTextContent('60%');
  });

  it('is gone through by arrow keys, which say what they come to', async () => {
    render(<TokenText pieces={PIECES} />);
    Element.prototype.scrollIntoView = () => undefined;
    const user = userEvent.setup();
    await user.tab();
    const said = (): string | null => document.querySelector('[aria-live]')?.textContent ?? null;
    expect(said()).toBe('The: 90%');
    await user.keyboard('{ArrowDown}');
    expect(said()).toBe('␣cat: 50%; likely instead: ␣dog 30%');
    await user.keyboard('{ArrowDown}');
    expect(said()).toMatch(/^␣down: 10%/);
    await user.keyboard('{ArrowUp}{ArrowRight}');
    expect(said()).toBe('␣sat: 85%');
    await user.keyboard('{Home}');
    expect(said()).toBe('The: 90%');
  });

  it('is shown in place of the formatted one only while that is wanted', async () => {
    const message = messageOf({ content: 'The cat sat down', chances: PIECES });
    render(<AssistantMessage message={message} isLast />);
    expect(await screen.findByText('The cat sat down')).toBeInTheDocument();
    act(() => useSampling.getState().change({ isTinted: true }));
    expect(await screen.findByRole('group', { name: /token by token/ })).toHaveTextContent(
      'The cat sat down',
    );
    expect(screen.getByText('below 80%')).toBeInTheDocument();
  });
});
