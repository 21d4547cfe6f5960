import { act, fireEvent, render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { useConnection } from '@/lib/connection/connection-store';
import { DEFAULT_SAMPLING, useSampling } from '../model/sampling';
import { InferenceGroup } from './inference-group';

beforeEach(() => {
  useSampling.getState().change(DEFAULT_SAMPLING);
  render(<InferenceGroup />);
});
afterEach(() => act(() => useConnection.setState(useConnection.getInitialState(), true)));

describe('the settings of answers', () => {
  it('have presets, and tell which one is in force', async () => {
    const precise = screen.getByRole('button', { name: 'Precise' });
    expect(screen.getByRole('button', { name: 'Balanced' })).toHaveAttribute(
      'aria-pressed',
      'true',
    );
    await userEvent.click(precise);
    expect(useSampling.getState().sampling).toMatchObject({ temperature: 0.2, topP: 0.9 });
    expect(precise).toHaveAttribute('aria-pressed', 'true');
    fireEvent.change(screen.getByRole('slider'), { target: { value: '0.5' } });
    expect(screen.queryByRole('button', { pressed: true })).toBeNull();
  });

  it('are kept for the next visit', () => {
    fireEvent.change(screen.getByLabelText('System prompt'), { target: { value: 'Be brief.' } });
    expect(localStorage.getItem('colibri.sampling')).toContain('Be brief.');
  });

  it('stay in range, and tell of a smaller limit of the server', () => {
    const limit = screen.getByLabelText('Max tokens');
    fireEvent.change(limit, { target: { value: '99999' } });
    expect(limit).toHaveValue(32_768);
    act(() =>
      useConnection.setState({ model: 'm', models: [{ id: 'm', max_output_tokens: 1024 }] }),
    );
    expect(screen.getByText(/at most 1,024/)).toBeInTheDocument();
  });
});
