import { act, cleanup, render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { Profiler } from 'react';
import { MemoryRouter } from 'react-router';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import MiniBrain from './mini-brain';

const EXPERTS = { rows: 1, cols: 4, map: '0041983f', hits: '05', seq: 1 };

beforeEach(() => {
  localStorage.clear();
  vi.stubGlobal('IntersectionObserver', function () {
    return { observe: vi.fn(), disconnect: vi.fn() };
  });
  vi.stubGlobal('ImageData', vi.fn());
  vi.stubGlobal('matchMedia', () => ({
    matches: true,
    addEventListener: vi.fn(),
    removeEventListener: vi.fn(),
  }));
  vi.spyOn(HTMLCanvasElement.prototype, 'getContext').mockReturnValue(null);
});
afterEach(() => {
  cleanup(); // while it still has what it asks the browser for
  vi.unstubAllGlobals();
  useTelemetry.setState(useTelemetry.getInitialState(), true);
});

function show(): void {
  act(() => useTelemetry.setState({ experts: EXPERTS }));
  render(<MiniBrain />, { wrapper: MemoryRouter });
}

describe('the small map beside the chat', () => {
  it('leads to the large one', () => {
    show();
    expect(screen.getByRole('link', { name: /open the brain/ })).toHaveAttribute('href', '/brain');
  });

  it('stays closed once it was closed', async () => {
    show();
    await userEvent.click(screen.getByRole('button', { name: 'Hide the brain' }));
    expect(screen.queryByRole('link')).toBeNull();
    render(<MiniBrain />, { wrapper: MemoryRouter });
    expect(screen.getAllByRole('button', { name: 'Show the brain' })).toHaveLength(2);
    expect(screen.queryByRole('link')).toBeNull();
  });

  it('renders nothing for a report of used experts', () => {
    const renders = vi.fn();
    act(() => useTelemetry.setState({ experts: EXPERTS }));
    render(
      <Profiler id="mini" onRender={renders}>
        <MiniBrain />
      </Profiler>,
      { wrapper: MemoryRouter },
    );
    renders.mockReset();
    act(() => useTelemetry.setState({ experts: { ...EXPERTS, seq: 2 } }));
    expect(renders).not.toHaveBeenCalled();
  });

  it('is not there where the server tells nothing of experts', () => {
    const { container } = render(<MiniBrain />, { wrapper: MemoryRouter });
    expect(container).toBeEmptyDOMElement();
  });
});
