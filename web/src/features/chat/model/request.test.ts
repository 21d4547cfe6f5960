import { describe, expect, it } from 'vitest';
import { messageOf } from '@/testing/messages';
import { buildRequest, userText, type RequestParts } from './request';
import { DEFAULT_SAMPLING } from './sampling';

const parts: RequestParts = {
  model: 'm',
  system: '',
  history: [messageOf({ role: 'user', content: 'hi' })],
  sampling: DEFAULT_SAMPLING,
  features: { isColibri: false, hasOurEngine: false, kvSlots: 0, maxTokens: null },
  slot: 3,
};

describe('a request', () => {
  it('has nothing that only colibrì servers know, for others', () => {
    expect(buildRequest(parts)).toEqual({
      model: 'm',
      messages: [{ role: 'user', content: 'hi' }],
      stream: true,
      stream_options: { include_usage: true },
      temperature: 0.7,
    });
  });

  it('leaves the usual limit, and no other, to an engine that is not ours', () => {
    const sent = (hasOurEngine: boolean, maxTokens: number): unknown =>
      buildRequest({
        ...parts,
        features: { ...parts.features, isColibri: true, hasOurEngine },
        sampling: { ...DEFAULT_SAMPLING, maxTokens },
      }).max_completion_tokens;
    expect(sent(false, DEFAULT_SAMPLING.maxTokens)).toBeUndefined();
    expect(sent(false, 100)).toBe(100);
    expect(sent(true, DEFAULT_SAMPLING.maxTokens)).toBe(4096);
  });

  it('names slot 0 where there are slots', () => {
    const features = { isColibri: true, hasOurEngine: true, kvSlots: 1, maxTokens: 1024 };
    expect(buildRequest({ ...parts, features, slot: 0 })).toMatchObject({
      cache_slot: 0,
      enable_thinking: false,
      max_completion_tokens: 1024,
    });
  });

  it('has the older limit alone when asked for it', () => {
    const sampling = { ...DEFAULT_SAMPLING, maxTokens: 100 };
    const body = buildRequest({ ...parts, sampling, hasOldLimit: true });
    expect(body.max_tokens).toBe(100);
    expect(body).not.toHaveProperty('max_completion_tokens');
  });

  it('has answers without their reasoning, and none that are empty', () => {
    const history = [
      messageOf({ role: 'user', content: 'a' }),
      messageOf({ reasoning: 'hm', content: 'b' }),
      messageOf({ role: 'user', content: 'c' }),
      messageOf({ content: '' }),
    ];
    expect(buildRequest({ ...parts, history, system: ' be kind ' }).messages).toEqual([
      { role: 'system', content: 'be kind' },
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b' },
      { role: 'user', content: 'c' },
    ]);
  });

  it('ends a trailing answer, which is to go on, without blanks', () => {
    const history = [...parts.history, messageOf({ content: 'half a \n' })];
    expect(buildRequest({ ...parts, history }).messages).toContainEqual({
      role: 'assistant',
      content: 'half a',
    });
  });

  it('sends at most four stop texts, and no empty ones', () => {
    const sampling = { ...DEFAULT_SAMPLING, stop: ['', 'a', 'b'], topP: 0.5 };
    expect(buildRequest({ ...parts, sampling })).toMatchObject({ stop: ['a', 'b'], top_p: 0.5 });
  });
});

describe('userText', () => {
  it('fences files so that nothing inside ends the fence', () => {
    const text = userText('look', [{ name: 'a.md', text: '```\n````' }]);
    expect(text).toBe('File: a.md\n`````\n```\n````\n`````\n\nlook');
  });

  it('is the text alone without files', () => {
    expect(userText('look', [])).toBe('look');
  });
});
