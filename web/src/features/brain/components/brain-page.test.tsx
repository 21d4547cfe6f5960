import { act, fireEvent, render, screen } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { healthSchema } from '@/lib/schemas';
import { resetTelemetry, useTelemetry } from '@/lib/telemetry/telemetry-store';
import BrainPage from './brain-page';

// Disk, never used; RAM, once; VRAM, heat 24; disk, heat 63; and the same again.
const EXPERTS = {
  rows: 2,
  cols: 4,
  map: '0041983f0041983f',
  hits: '05',
  seq: 1,
  layers: [3, 78],
  mtp_row: 1,
};

beforeEach(() => {
  vi.stubGlobal(
    'ResizeObserver',
    class {
      constructor(private readonly tell: (entries: object[]) => void) {}
      observe(): void {
        this.tell([{ contentRect: { width: 400, height: 200 } }]);
      }
      disconnect(): void {
        // nothing is held
      }
    },
  );
  vi.stubGlobal('ImageData', vi.fn());
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener: vi.fn(),
    removeEventListener: vi.fn(),
  }));
  vi.spyOn(HTMLCanvasElement.prototype, 'getContext').mockReturnValue(null);
  render(<BrainPage />, { wrapper: MemoryRouter });
});
afterEach(() => {
  act(resetTelemetry);
});

function tell(part: object): void {
  act(() => useTelemetry.setState({ server: 'ready', experts: { ...EXPERTS, ...part } }));
}

describe('the brain', () => {
  it('counts the experts of each tier', () => {
    tell({});
    expect(screen.getByText('2 layers with experts × 4 = 8')).toBeInTheDocument();
    const counts = ['vram', 'ram', 'disk', 'used'].map(
      (tier) => document.querySelector(`[data-tier=${tier}] dd`)?.textContent,
    );
    expect(counts.map((text) => text?.charAt(0))).toEqual(['2', '2', '4', '2']);
  });

  it('is read by keys', () => {
    tell({});
    const grid = screen.getByRole('grid', { name: 'Experts by layer' });
    act(() => grid.focus());
    expect(screen.getByRole('gridcell')).toHaveTextContent(
      /^Layer 3, expert 0, Disk, never chosen/,
    );
    fireEvent.keyDown(grid, { key: 'ArrowRight' });
    expect(screen.getByRole('gridcell')).toHaveTextContent(/^Layer 3, expert 1, RAM, chosen once/);
    fireEvent.keyDown(grid, { key: 'End' });
    fireEvent.keyDown(grid, { key: 'PageDown' });
    expect(screen.getByRole('gridcell')).toHaveTextContent(/^Layer 78 \(MTP\), expert 3, Disk/);
  });

  it.each([
    ['too short', { map: '0041' }],
    ['of odd length', { map: '0041983f0041983' }],
  ])('keeps the last map when one comes that is %s', (_name, broken) => {
    tell({});
    tell({ ...broken, seq: 2 });
    expect(screen.getByRole('status')).toHaveTextContent('cannot be read');
    expect(screen.getByText('2 layers with experts × 4 = 8')).toBeInTheDocument();
  });

  it('says why there is none', () => {
    act(() => useTelemetry.setState({ server: 'foreign' }));
    expect(screen.getByRole('status')).toHaveTextContent('The map needs coli serve');
  });

  it('does not wait for a map of the server behind this one', () => {
    const health = healthSchema.parse({ status: 'ok', upstream: { server: 'vllm' } });
    act(() => useTelemetry.setState({ server: 'ready', health }));
    expect(screen.getByRole('status')).toHaveTextContent('the server behind this one');
  });
});
