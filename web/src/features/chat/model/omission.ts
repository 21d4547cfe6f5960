// Leaving the oldest messages out of requests, where the context has no room for all. Pure.
import type { Message } from './conversation';

/** Where what is sent begins in a path; all of it where what was left out is on another branch. */
export function sentFrom(path: readonly Message[], omittedTo: string | null | undefined): number {
  return path.findIndex((message) => message.id === omittedTo) + 1;
}

/**
 * The message up to which to leave out so that about half of what is sent goes, ending with an
 * answer; null if there is nothing that could go.
 */
export function omitHalf(path: readonly Message[], from: number): string | null {
  const asked = path.flatMap((message, index) =>
    message.role === 'user' && index > from ? [index] : [],
  );
  const middle = from + Math.ceil((path.length - from) / 2);
  const next = asked.find((index) => index >= middle) ?? path.length;
  return path[next - 1]?.id ?? null;
}
