import { afterEach, describe, expect, it, vi } from 'vitest';
import { copyText } from './clipboard';

afterEach(() => {
  vi.unstubAllGlobals();
  Reflect.deleteProperty(document, 'execCommand');
});

function stubCommand(result: () => boolean): string[] {
  const copied: string[] = [];
  Object.defineProperty(document, 'execCommand', {
    configurable: true,
    value: () => {
      copied.push(document.querySelector('textarea')?.value ?? '');
      return result();
    },
  });
  return copied;
}

describe('copying', () => {
  it('uses the clipboard where the page is secure', async () => {
    const writeText = vi.fn().mockResolvedValue(undefined);
    vi.stubGlobal('isSecureContext', true);
    vi.stubGlobal('navigator', { clipboard: { writeText } });
    expect(await copyText('a\tb\n')).toBe(true);
    expect(writeText).toHaveBeenCalledWith('a\tb\n');
  });

  it('works on plain http, and leaves nothing in the page', async () => {
    vi.stubGlobal('isSecureContext', false);
    const copied = stubCommand(() => true);
    expect(await copyText('a\tb\n')).toBe(true);
    expect(copied).toEqual(['a\tb\n']);
    expect(document.querySelector('textarea')).toBeNull();
  });

  it('tells when neither way works', async () => {
    vi.stubGlobal('isSecureContext', true);
    vi.stubGlobal('navigator', { clipboard: { writeText: vi.fn().mockRejectedValue('no') } });
    stubCommand(() => {
      throw new Error('no');
    });
    expect(await copyText('a')).toBe(false);
  });
});
