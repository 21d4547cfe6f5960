import { act, render, screen } from '@testing-library/react';
import { afterEach, describe, expect, it } from 'vitest';
import { readHealth, readTurns } from '@/lib/telemetry/readings';
import { resetTelemetry, useTelemetry } from '@/lib/telemetry/telemetry-store';
import { RuntimePanel } from './runtime-panel';

function tell(health: object): void {
  act(() => useTelemetry.setState({ ...readHealth(health), heardAt: Date.now() }));
}

afterEach(() => act(resetTelemetry));

describe('the runtime panel', () => {
  it('shows what the server tells and hides what it does not', () => {
    render(<RuntimePanel />);
    tell({
      status: 'ok',
      scheduler: { active: true, queued: 2, max_queue: 8, rejected: 1, timed_out: 2, cancelled: 3 },
      kv_slots: 2,
      tiers: { vram: 1200, ram: 30, disk: 4, vram_gb: 2.5 },
      hwinfo: { cores: 16, cpu: 'A CPU', ram_total_gb: 0 },
    });
    expect(
      screen.getByRole('img', { name: '1,200 experts in VRAM, 30 in RAM, 4 on disk' }),
    ).toBeInTheDocument();
    expect(screen.getByText('Active').closest('div')).toHaveTextContent('1/2');
    expect(screen.getByText('Queued').closest('div')).toHaveTextContent('2/8');
    expect(screen.getByText('Failures').closest('div')).toHaveTextContent('6');
    expect(screen.getByText('A CPU, 16 cores')).toBeInTheDocument();
    expect(screen.queryByText('RAM', { selector: '[data-row=ram] dt' })).not.toBeNull();
    expect(screen.queryByText(/free$/)).toBeNull();
    expect(screen.getAllByText('idle')).toHaveLength(2);
  });

  it('shows the server behind, and not hundreds of free places', () => {
    render(<RuntimePanel />);
    tell({
      status: 'ok',
      scheduler: { active: 1, capacity: 256 },
      kv_slots: 256,
      upstream: {
        server: 'vllm',
        url: 'http://box:8001',
        running: 3,
        waiting: 0,
        kv_usage: 0.25,
        decode_rate: 41.26,
        hit_ratio: null,
      },
    });
    const block = screen.getByText('Server behind').closest('section');
    expect(block).toHaveTextContent('vllm');
    expect(screen.getByText('Waiting').closest('div')).toHaveTextContent('0');
    expect(screen.getByText('KV cache in use').closest('div')).toHaveTextContent('25');
    expect(screen.getByText('Tokens/s').closest('div')).toHaveTextContent('41.3');
    expect(screen.queryByText('Prefix hits')).toBeNull();
    expect(screen.queryByText('idle')).toBeNull();
    expect(screen.getByText('Active').closest('div')).toHaveTextContent('1/256');
  });

  it('splits the time of the last turn', () => {
    render(<RuntimePanel />);
    tell({ status: 'ok', scheduler: {} });
    const turn = { wall_s: 2, expert_wait_s: 0.5, completion_tokens: 10, forwards: 5 };
    act(() => useTelemetry.setState((state) => readTurns({ seq: 1, turns: [turn] }, state)));
    expect(screen.getByRole('img', { name: /I\/O wait 0\.50 s.*Other 1\.50 s/ })).toBeVisible();
    expect(screen.getByText('last turn 5.0')).toBeInTheDocument();
    expect(screen.getByText('2.00', { selector: 'dd' })).toBeInTheDocument();
  });

  it('says what a server of another kind cannot show', () => {
    render(<RuntimePanel />);
    act(() => useTelemetry.setState({ server: 'foreign' }));
    expect(screen.getByText(/tells nothing about its runtime/)).toBeInTheDocument();
  });

  it('greys figures out when the server is gone', () => {
    render(<RuntimePanel />);
    tell({ status: 'ok', scheduler: {} });
    act(() => useTelemetry.setState({ server: 'unreachable' }));
    expect(screen.getByRole('complementary')).toHaveAttribute('data-stale', 'true');
  });
});
