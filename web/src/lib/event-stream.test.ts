import { describe, expect, it } from 'vitest';
import { readEventStream } from './event-stream';

async function eventsOf(chunks: Uint8Array[]): Promise<[string, string][]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      chunks.forEach((chunk) => controller.enqueue(chunk));
      controller.close();
    },
  });
  const events: [string, string][] = [];
  await readEventStream(body, { onEvent: (name, data) => events.push([name, data]) });
  return events;
}

describe('readEventStream', () => {
  const text =
    ': a comment\nid: 7\nretry: 10\ndata: {"a":"è 蜂鳥 🐦"}\n\nevent: tiers\ndata: one\ndata: two\n\ndata: [DONE]\n\n';
  const expected = [
    ['message', '{"a":"è 蜂鳥 🐦"}'],
    ['tiers', 'one\ntwo'],
    ['message', '[DONE]'],
  ];

  it.each([
    ['LF', text],
    ['CRLF', text.replaceAll('\n', '\r\n')],
  ])('gives the same events wherever the bytes are cut, with %s', async (_name, source) => {
    const bytes = new TextEncoder().encode(source);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      expect(await eventsOf([bytes.slice(0, cut), bytes.slice(cut)])).toEqual(expected);
    }
  });

  it('gives a last event that has no blank line after it', async () => {
    expect(await eventsOf([new TextEncoder().encode('data: end')])).toEqual([['message', 'end']]);
  });

  it('reports comments and any activity', async () => {
    const comments: string[] = [];
    let active = 0;
    const body = new Response(': prefill 3/9\n\n').body;
    if (body === null) throw new Error('no body');
    await readEventStream(body, {
      onEvent: () => undefined,
      onComment: (comment) => comments.push(comment),
      onActivity: () => (active += 1),
    });
    expect(comments).toEqual(['prefill 3/9']);
    expect(active).toBeGreaterThan(0);
  });
  it('loses nothing of what comes while it rests', async () => {
    const bytes = new TextEncoder().encode('data: a\n\n');
    let reads = 0;
    const body = new ReadableStream<Uint8Array>(
      {
        start(controller) {
          for (let count = 0; count < 3; count += 1) controller.enqueue(bytes);
          controller.close();
        },
      },
      { highWaterMark: 3 },
    );
    const told: string[] = [];
    let rests = 0;
    await readEventStream(body, {
      onEvent: (_name, data) => told.push(data),
      onActivity: () => (reads += 1),
      restMs: () => (rests++ === 0 ? 5 : 0),
    });
    expect(told).toEqual(['a', 'a', 'a']);
    expect([reads, rests]).toEqual([3, 3]);
  });
});
