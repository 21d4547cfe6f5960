import { describe, expect, it } from 'vitest';
import { parseChunk, type ChatDelta } from '../api/stream-chat';
import { applyDelta, decodeRate, figuresOf, isComplete, startTurn, type Turn } from './turn';

function chunk(delta: object, finish: string | null = null): string {
  return JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] });
}

function run(lines: string[], before: Turn = startTurn(0)): Turn {
  return lines.flatMap(parseChunk).reduce((turn, delta) => applyDelta(turn, delta, 1), before);
}

describe('a turn', () => {
  it('joins content and reads usage and telemetry from chunks without choices', () => {
    const turn = run([
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: 'Hel' }),
      chunk({ content: 'lo' }),
      chunk({}, 'stop'),
      JSON.stringify({ choices: [], usage: { prompt_tokens: 19, completion_tokens: 72 } }),
      JSON.stringify({ choices: [], colibri: { stats: { hit_percent: 98.5, rss_gb: 1.5 } } }),
      '[DONE]',
    ]);
    expect(turn.content).toBe('Hello');
    expect(turn.usage).toMatchObject({ promptTokens: 19, completionTokens: 72 });
    expect([turn.hitPercent, turn.rssGb]).toEqual([98.5, 1.5]);
    expect(isComplete(turn)).toBe(true);
  });

  it('has no figures of an engine that nobody tells', () => {
    const stats = { hit_percent: 0, rss_gb: 0 };
    const turn = run([chunk({ content: 'a' }, 'stop'), JSON.stringify({ colibri: { stats } })]);
    expect([turn.hitPercent, turn.rssGb]).toEqual([null, null]);
  });

  it('keeps what came before and after a chunk that is no JSON', () => {
    const turn = run([chunk({ content: 'a' }), '{broken', chunk({ content: 'b' }, 'stop')]);
    expect(turn.content).toBe('ab');
    expect(turn.hasMalformed).toBe(true);
  });

  it('is cut if the stream ends without a reason and without [DONE]', () => {
    expect(isComplete(run([chunk({ content: 'a' })]))).toBe(false);
    expect(isComplete(run([chunk({ content: 'a' }), '[DONE]']))).toBe(true);
    expect(isComplete(run([chunk({ content: 'a' }, 'length')]))).toBe(true);
  });

  it('is cut by an error event, and knows its words', () => {
    const turn = run([
      chunk({ content: 'a' }),
      JSON.stringify({ error: { message: 'the engine ended' } }),
    ]);
    expect(isComplete(turn)).toBe(false);
    expect(turn.failure).toBe('the engine ended');
  });

  it('keeps reasoning apart, and counts nothing for empty pieces that keep the line alive', () => {
    const alive = run([chunk({ reasoning_content: '' }), chunk({ content: '' })]);
    expect([alive.pieces, alive.firstAt, alive.phase]).toEqual([0, null, 'waiting']);
    const turn = run([chunk({ reasoning_content: 'hm' }), chunk({ content: 'yes' })], alive);
    expect([turn.reasoning, turn.content, turn.phase]).toEqual(['hm', 'yes', 'answering']);
  });

  it('joins the pieces of tool calls by their index', () => {
    const call = (index: number, id: string, name: string, text: string): string =>
      chunk({ tool_calls: [{ index, id, function: { name, arguments: text } }] });
    const turn = run([
      call(0, 'a', 'add', '{"x"'),
      call(1, 'b', 'sub', '{}'),
      call(0, '', '', ':1}'),
    ]);
    expect(turn.toolCalls).toEqual([
      { id: 'a', name: 'add', arguments: '{"x":1}' },
      { id: 'b', name: 'sub', arguments: '{}' },
    ]);
  });

  it('takes a tool call at an impossible place as the next one', () => {
    const call = (index: number): string =>
      chunk({ tool_calls: [{ index, id: 'a', function: { name: 'f', arguments: '{}' } }] });
    for (const index of [4_000_000_000, 1, 0.5, -1]) {
      expect(run([call(index)]).toolCalls).toEqual([{ id: 'a', name: 'f', arguments: '{}' }]);
    }
  });

  it('measures from the first to the last token, not from when it was sent', () => {
    let turn = startTurn(0);
    for (let index = 0; index < 20; index += 1) {
      turn = applyDelta(turn, { type: 'content', text: 'x' }, 3000 + index * 100);
    }
    const usage: ChatDelta = {
      type: 'usage',
      usage: { promptTokens: 5, completionTokens: 20, cachedTokens: 0, reasoningTokens: 0 },
    };
    turn = applyDelta(turn, usage, 5000);
    expect(decodeRate(turn)).toBeCloseTo(10, 5);
    expect(figuresOf(turn, 5000)).toMatchObject({
      ttftMs: 3000,
      completionTokens: 20,
      wallMs: 5000,
    });
  });

  it('has no rate before there are two tokens', () => {
    expect(decodeRate(applyDelta(startTurn(0), { type: 'content', text: 'x' }, 5))).toBeNull();
  });
});
