import { afterEach, expect, it, vi } from 'vitest';
import { saveFile } from './save-file';

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it('offers a text under its name and lets go of it later', () => {
  vi.useFakeTimers();
  const revoke = vi.fn();
  Object.assign(URL, { createObjectURL: () => 'blob:x', revokeObjectURL: revoke });
  const clicked: string[] = [];
  vi.spyOn(HTMLAnchorElement.prototype, 'click').mockImplementation(function (
    this: HTMLAnchorElement,
  ) {
    clicked.push(`${this.download} ${this.href}`);
  });
  saveFile('code.py', 'x = 1', 'text/plain');
  expect(clicked).toEqual(['code.py blob:x']);
  expect(revoke).not.toHaveBeenCalled();
  vi.runAllTimers();
  expect(revoke).toHaveBeenCalledWith('blob:x');
});
