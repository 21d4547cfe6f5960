import { afterEach, describe, expect, it, vi } from 'vitest';
import { readStored, readStoredJson, writeStored } from './storage';

afterEach(() => {
  vi.restoreAllMocks();
  localStorage.clear();
});

describe('small storage', () => {
  it('keeps, forgets and reads JSON', () => {
    writeStored('a', '{"b":1}');
    expect(localStorage.getItem('a')).toBe('{"b":1}');
    expect(readStoredJson('a')).toEqual({ b: 1 });
    writeStored('a', null);
    expect(readStored('a')).toBeNull();
  });

  it('takes what cannot be read as nothing', () => {
    localStorage.setItem('a', '{');
    expect(readStoredJson('a')).toBeUndefined();
    expect(readStoredJson('never written')).toBeUndefined();
  });

  it('lasts as long as the page where the browser refuses it', () => {
    const refuse = (): never => {
      throw new DOMException('no', 'SecurityError');
    };
    vi.spyOn(window, 'localStorage', 'get').mockImplementation(refuse);
    writeStored('c', 'text');
    expect(readStored('c')).toBe('text');
    writeStored('c', null);
    expect(readStored('c')).toBeNull();
  });
});
