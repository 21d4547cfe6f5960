import { act, render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { useConnection } from '@/lib/connection/connection-store';
import { setLocale } from '@/lib/i18n/i18n';
import { useTheme } from '@/lib/theme';
import { AboutGroup } from './about-group';
import { AppearanceGroup } from './appearance-group';
import { ConnectionGroup } from './connection-group';
import { ShortcutTable } from './shortcut-table';

afterEach(() => {
  vi.unstubAllGlobals();
  act(() => {
    useConnection.setState(useConnection.getInitialState(), true);
    useTheme.getState().setTheme('system');
    setLocale('en');
  });
  localStorage.clear();
});

describe('the connection', () => {
  it('is tried by Enter, with the key in the head and kept nowhere', async () => {
    const fetched = vi.fn().mockResolvedValue(Response.json({ data: [{ id: 'a' }, { id: 'b' }] }));
    vi.stubGlobal('fetch', fetched);
    render(<ConnectionGroup />);
    const address = screen.getByLabelText('Server address');
    await userEvent.clear(address);
    await userEvent.type(address, 'http://127.0.0.1:9000/v1');
    await userEvent.type(screen.getByLabelText('API key'), 'secret{Enter}');
    expect(await screen.findByText('Connected')).toBeInTheDocument();
    expect(fetched).toHaveBeenCalledOnce();
    const [url, options] = fetched.mock.calls[0] as [string, RequestInit];
    expect(url).toBe('http://127.0.0.1:9000/v1/models');
    expect(options.headers).toMatchObject({ Authorization: 'Bearer secret' });
    for (const area of [localStorage, sessionStorage]) {
      expect(JSON.stringify(Object.entries(area))).not.toContain('secret');
    }
    expect(screen.getByLabelText('Model')).toHaveValue('a');
  });

  it('warns of a key that would travel in the open', async () => {
    render(<ConnectionGroup />);
    act(() => useConnection.getState().setBase('http://example.com/v1'));
    await userEvent.type(screen.getByLabelText('API key'), 'k');
    expect(screen.getByText(/not encrypted/)).toBeInTheDocument();
  });

  it('does not try what is no address', () => {
    render(<ConnectionGroup />);
    act(() => useConnection.getState().setBase('ftp://h'));
    expect(screen.getByText(/must begin with http/)).toBeInTheDocument();
    expect(screen.getByRole('button', { name: 'Connect' })).toBeDisabled();
  });
});

describe('the appearance', () => {
  it('changes at once and is kept', async () => {
    render(<AppearanceGroup />);
    await userEvent.selectOptions(screen.getByLabelText('Theme'), 'light');
    expect(document.documentElement.dataset.theme).toBe('light');
    await userEvent.selectOptions(screen.getByLabelText('Language'), 'it');
    expect(await screen.findByLabelText('Lingua')).toHaveValue('it');
    expect(document.documentElement.lang).toBe('it');
    expect(localStorage.getItem('colibri-locale')).toBe('it');
  });
});

describe('the other groups', () => {
  it('copy diagnostics without the key', async () => {
    const writeText = vi.fn().mockResolvedValue(undefined);
    vi.stubGlobal('isSecureContext', true);
    vi.stubGlobal('navigator', { clipboard: { writeText }, userAgent: 'test' });
    act(() => useConnection.setState({ apiKey: 'secret', model: 'm' }));
    render(<AboutGroup />);
    act(() => screen.getByRole('button', { name: 'Copy diagnostics' }).click());
    await vi.waitFor(() => expect(writeText).toHaveBeenCalledOnce());
    const [text] = writeText.mock.calls[0] as [string];
    expect(text).toContain('"model": "m"');
    expect(text).not.toContain('secret');
  });

  it('list the keys', () => {
    render(<ShortcutTable />);
    expect(screen.getByText('Stop the answer').closest('div')).toHaveTextContent('Esc');
  });
});
