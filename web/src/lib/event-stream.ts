// Server-sent events from the body of a fetch (EventSource cannot send a key). Knows no React.
import { createParser } from 'eventsource-parser';

export interface StreamListener {
  /** A complete event: its name ("message" if it has none) and its data lines joined by LF. */
  onEvent: (name: string, data: string) => void;
  /** The text of a comment line. */
  onComment?: (text: string) => void;
  /** Any bytes at all arrived. */
  onActivity?: () => void;
  /**
   * How many milliseconds to leave what comes next where it is, asked after each read: what arrives
   * meanwhile is taken in at once. Each read wakes the page, and a fast answer comes in many.
   */
  restMs?: () => number;
}

/** Read a body to its end. Bytes may be cut anywhere, inside a character too. */
export async function readEventStream(
  body: ReadableStream<Uint8Array>,
  listener: StreamListener,
): Promise<void> {
  const decoder = new TextDecoder();
  const parser = createParser({
    onEvent: (event) => listener.onEvent(event.event ?? 'message', event.data),
    onComment: (text) => listener.onComment?.(text),
  });
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      listener.onActivity?.();
      parser.feed(decoder.decode(value, { stream: true }));
      const rest = listener.restMs?.() ?? 0;
      if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
    }
    // A last event without its blank line still counts: some servers close that way.
    parser.feed(`${decoder.decode()}\n\n`);
  } finally {
    reader.releaseLock();
  }
}
