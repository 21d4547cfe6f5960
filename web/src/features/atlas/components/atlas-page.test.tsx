import { act, render, screen, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { MemoryRouter } from 'react-router';
import { afterEach, beforeEach, describe, expect, it, vi, type Mock } from 'vitest';
import { useAtlasStore } from '@/lib/atlas/use-atlas';
import { useConnection } from '@/lib/connection/connection-store';
import { healthSchema } from '@/lib/schemas';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import AtlasPage from './atlas-page';

const FILE = {
  categories: ['code', 'law', 'math'],
  experts: {
    '3:0': { affinity: { code: 1 }, label: 'specialist: code' },
    '3:1': { affinity: { code: 0.2, law: 0.3, math: 0.5 }, label: 'generalist' },
    '9:4': { affinity: { law: 0.9, math: 0.1 }, label: 'specialist: law' },
    '9:5': { affinity: { cooking: 1 } },
  },
};

function serve(status: number, body: unknown): Mock {
  const fetched = vi.fn(() =>
    Promise.resolve(
      new Response(JSON.stringify(body), {
        status,
        headers: { 'content-type': 'application/json' },
      }),
    ),
  );
  vi.stubGlobal('fetch', fetched);
  act(() => {
    useConnection.setState({ status: 'connected' });
    useTelemetry.setState({ server: 'ready' });
  });
  render(<AtlasPage />, { wrapper: MemoryRouter });
  return fetched;
}

beforeEach(() => {
  vi.spyOn(HTMLCanvasElement.prototype, 'getContext').mockReturnValue(null); // as without WebGL
  vi.stubGlobal('ResizeObserver', function () {
    return { observe: vi.fn(), disconnect: vi.fn() };
  });
  vi.stubGlobal('matchMedia', () => ({
    matches: true,
    addEventListener: vi.fn(),
    removeEventListener: vi.fn(),
  }));
});
afterEach(() => {
  vi.unstubAllGlobals();
  act(() => {
    useConnection.setState({ status: 'idle' });
    useTelemetry.setState({ server: 'unknown', health: null });
    useAtlasStore.setState({ base: '', state: { status: 'unknown' } });
  });
});

describe('the atlas', () => {
  it('names the commands that make one where there is none', async () => {
    serve(404, { error: { message: 'nobody measured this model' } });
    expect(await screen.findByText(/coli atlas sweep/)).toBeInTheDocument();
  });

  it('names no commands to a server that stands in front of another', async () => {
    const told = { status: 'ok', atlas: false, upstream: { server: 'vllm', url: 'http://b' } };
    const { data: health } = healthSchema.safeParse(told);
    act(() => useTelemetry.setState({ health: health ?? null }));
    serve(404, { error: { message: 'nobody measured this model' } });
    expect(await screen.findByText(/the server behind this one/)).toBeInTheDocument();
    expect(screen.queryByText(/coli atlas sweep/)).toBeNull();
  });

  it('is not asked for where the server tells that there is none, until it tells of one', async () => {
    const { data: health } = healthSchema.safeParse({ status: 'ok', scheduler: {}, atlas: false });
    act(() => useTelemetry.setState({ health: health ?? null }));
    const fetched = serve(200, FILE);
    expect(await screen.findByText(/coli atlas sweep/)).toBeInTheDocument();
    expect(fetched).not.toHaveBeenCalled();
    act(() => {
      if (health) useTelemetry.setState({ health: { ...health, atlas: true } });
    });
    expect(await screen.findByText('Experts as a table')).toBeInTheDocument();
  });

  it('says that a file is no atlas', async () => {
    serve(200, { experts: 3 });
    expect(await screen.findByText(/no atlas that this page can read/)).toBeInTheDocument();
  });

  it('counts what it shows and what it could not read, and does without 3-D', async () => {
    serve(200, FILE);
    expect(await screen.findByText(/3 experts, 2 of them specialists/)).toHaveTextContent(
      '1 entries could not be read',
    );
    expect(await screen.findByText(/nothing in three dimensions/)).toBeInTheDocument();
  });

  it('finds an expert, tells of it and leads to its cell', async () => {
    const user = userEvent.setup();
    serve(200, FILE);
    const field = await screen.findByRole('searchbox');
    await user.type(field, '9:7');
    expect(field).toBeInvalid();
    await user.clear(field);
    await user.type(field, '9:4');
    expect(field).toBeValid();
    expect(screen.getByRole('heading', { name: 'Layer 9, expert 4' })).toBeInTheDocument();
    expect(screen.getByText(/Specialist: law/)).toHaveTextContent('entropy 0.47 bits');
    expect(screen.getAllByRole('listitem').map((item) => item.textContent)).toEqual([
      'law90%',
      'math10%',
      'code0%',
    ]);
    expect(screen.getByRole('link', { name: 'Show in Brain' })).toHaveAttribute(
      'href',
      '/brain?expert=9:4',
    );
  });

  it('lists the shown experts, the most specialised first', async () => {
    const user = userEvent.setup();
    serve(200, FILE);
    await user.click(await screen.findByText('Experts as a table'));
    const names = () =>
      within(screen.getByRole('table'))
        .getAllByRole('rowheader')
        .map((cell) => cell.textContent);
    expect(names()).toEqual(['3:0', '9:4', '3:1']);
    await user.click(screen.getByRole('checkbox', { name: 'Specialists only' }));
    expect(names()).toEqual(['3:0', '9:4']);
    await user.click(screen.getByRole('button', { name: 'law' }));
    expect(names()).toEqual(['3:0']);
    await user.click(screen.getByRole('button', { name: '3:0' }));
    expect(screen.getByRole('heading', { name: 'Layer 3, expert 0' })).toBeInTheDocument();
  });
});
