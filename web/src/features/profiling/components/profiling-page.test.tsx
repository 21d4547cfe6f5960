import { act, render, screen, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it } from 'vitest';
import { readTurns } from '@/lib/telemetry/readings';
import { resetTelemetry, useTelemetry } from '@/lib/telemetry/telemetry-store';
import ProfilingPage from './profiling-page';

const TURNS = [
  { wall_s: 0, completion_tokens: 3, forwards: 0 },
  { wall_s: 1, expert_wait_s: 2, completion_tokens: 5, forwards: 5 },
  {
    wall_s: 12.34,
    prompt_tokens: 19,
    completion_tokens: 72,
    expert_disk_s: 9,
    expert_wait_s: 8,
    expert_matmul_s: 2,
    attention_s: 1,
    lm_head_s: 0.5,
    forwards: 36,
  },
];

function show(turns: object[], seq = turns.length): void {
  render(<ProfilingPage />);
  act(() => useTelemetry.setState((state) => readTurns({ seq, turns }, state)));
}

afterEach(() => act(resetTelemetry));

describe('the profiling page', () => {
  it('says that there is nothing yet, or why', () => {
    show([]);
    expect(screen.getByRole('status')).toHaveTextContent('No turn yet');
    act(() => useTelemetry.setState({ server: 'foreign' }));
    expect(screen.getByRole('status')).toHaveTextContent('needs coli serve');
  });

  it('shows the last turn in figures, and what bounds all of them', () => {
    show(TURNS);
    const tile = (name: string) => screen.getByText(name).nextSibling;
    expect(tile('Throughput')).toHaveTextContent(/^5\.8/);
    expect(document.querySelector('[data-tile=wall] dd')).toHaveTextContent('12.3 s19→72 tokens');
    expect(document.querySelector('[data-tile=perForward] dd')).toHaveTextContent('2.00');
    expect(document.querySelector('[data-tile=disk] dd')).toHaveTextContent('9.00 s');
    expect(screen.getByText(/^I\/O-bound/)).toBeInTheDocument();
    expect(screen.getAllByRole('figure')).toHaveLength(2);
  });

  it('has every turn in a table, newest first, without nonsense', () => {
    show(TURNS, 130);
    const [, ...rows] = within(screen.getByRole('table')).getAllByRole('row');
    expect(rows.map((row) => within(row).getByRole('rowheader').textContent)).toEqual([
      '130',
      '129',
      '128',
    ]);
    expect(rows[1]).toHaveTextContent('0→5');
    expect(screen.getByRole('table')).not.toHaveTextContent(/NaN|Infinity|-\d/);
  });

  it('has a dash for turns without steps', () => {
    show(TURNS.slice(0, 1));
    expect(document.querySelector('[data-tile=perForward] dd')).toHaveTextContent('—');
    expect(screen.getAllByRole('figure')).toHaveLength(1);
  });

  it('tells of each turn by keys', async () => {
    const user = userEvent.setup();
    show(TURNS);
    const chart = screen.getByRole('slider', { name: 'Time by phase' });
    act(() => chart.focus());
    await user.keyboard('{End}{ArrowLeft}');
    expect(chart).toHaveAttribute('aria-valuenow', '2');
    expect(chart).toHaveAttribute('aria-valuetext', expect.stringMatching(/^Turn 2: 5 tokens/));
    expect(screen.getByText(/^Turn 2: 5 tokens at 5\.0 tok\/s/)).toBeInTheDocument();
    await user.tab();
    expect(screen.getByText(/^Point at a turn/)).toBeInTheDocument();
  });
});
