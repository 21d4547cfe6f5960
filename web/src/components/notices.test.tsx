import { act, fireEvent, render, screen } from '@testing-library/react';
import { describe, expect, it, vi } from 'vitest';
import { notify, useNotices } from '@/lib/notices';
import Notices from './notices';

describe('notes over the page', () => {
  it('are shown, those from before there was a place for them included, each once', async () => {
    vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener: vi.fn() }));
    const run = vi.fn();
    notify({ kind: 'failed', text: 'It could not be copied.' });
    expect(useNotices.getState().isUsed).toBe(true);
    render(<Notices />);
    expect(await screen.findByText('It could not be copied.')).toBeVisible();
    act(() => notify({ kind: 'plain', text: 'Deleted.', action: { label: 'Undo', run } }));
    fireEvent.click(await screen.findByRole('button', { name: 'Undo' }));
    expect(run).toHaveBeenCalledOnce();
    expect(screen.getAllByText('It could not be copied.')).toHaveLength(1);
    vi.unstubAllGlobals();
  });
});
