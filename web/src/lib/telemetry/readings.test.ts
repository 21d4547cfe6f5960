import { describe, expect, it } from 'vitest';
import type { TelemetryState } from '@/lib/telemetry/telemetry-store';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { phasesOf, tokensPerForward, turnRate } from './phases';
import { readExperts, readHealth, readTurns } from './readings';

const initial = useTelemetry.getInitialState();
const turn = {
  wall_s: 2,
  expert_disk_s: 1,
  expert_wait_s: 0.5,
  expert_matmul_s: 0.5,
  attention_s: 0.25,
  lm_head_s: 0.25,
  prompt_tokens: 3,
  completion_tokens: 8,
  forwards: 4,
};

describe('a health object', () => {
  it.each([
    [true, 1],
    [false, 0],
    [3, 3],
    [undefined, 0],
  ])('with %j active requests shows %d', (active, shown) => {
    const { health } = readHealth({ status: 'ok', scheduler: { active } });
    expect(health?.scheduler?.active).toBe(shown);
  });

  it.each([
    [{ status: 'ok', scheduler: {} }, 'ready'],
    [{ status: 'ok' }, 'foreign'],
    [{ status: 'loading' }, 'loading'],
    [{ status: 'loading', engine: { restarts: 2 } }, 'restarting'],
    [{ status: 'error', engine: { state: 'restarting' } }, 'restarting'],
    [{ status: 'error' }, 'down'],
    ['<html>', 'foreign'],
    [null, 'foreign'],
  ])('%j means %s', (answer, server) => {
    expect(readHealth(answer).server).toBe(server);
  });

  it('counts a field of a wrong kind as left out', () => {
    const { health } = readHealth({ status: 'ok', scheduler: {}, kv_slots: 'x', tiers: 7 });
    expect(health?.kv_slots).toBeUndefined();
    expect(health?.tiers).toBeUndefined();
  });
});

describe('turns', () => {
  it('are added as they are numbered, however they are told', () => {
    const state: TelemetryState = { ...initial, turns: [turn], turnSeq: 1 };
    const next = { ...turn, completion_tokens: 9 };
    for (const turns of [[next], [turn, next]]) {
      expect(readTurns({ seq: 2, turns }, state)).toEqual({ turnSeq: 2, turns: [turn, next] });
    }
    expect(readTurns({ seq: 1, turns: [turn] }, state)).toEqual({});
  });

  it('begin anew with another engine', () => {
    const state: TelemetryState = { ...initial, turns: [turn, turn], turnSeq: 2 };
    expect(readTurns({ seq: 1, turns: [turn] }, state)).toEqual({ turnSeq: 1, turns: [turn] });
  });
});

describe('experts', () => {
  const experts = { rows: 1, cols: 4, map: '0041983f', hits: '05', seq: 1 };

  it('are news once', () => {
    const first = readExperts(experts, initial);
    expect(first.experts).toMatchObject(experts);
    expect(readExperts(experts, { ...initial, ...first })).toEqual({});
  });

  it('that are none yet change nothing', () => {
    expect(readExperts({ ...experts, rows: 0 }, initial)).toEqual({});
    expect(readExperts('x', initial)).toEqual({});
  });
});

describe('the time of a turn', () => {
  it('adds up', () => {
    expect(phasesOf(turn)).toEqual({
      wait: 0.5,
      matmul: 0.5,
      attention: 0.25,
      head: 0.25,
      other: 0.5,
    });
    expect([turnRate(turn), tokensPerForward(turn)]).toEqual([4, 2]);
  });

  it('is never negative, and no division by zero', () => {
    const odd = { ...turn, wall_s: 0, forwards: 0 };
    expect(phasesOf(odd).other).toBe(0);
    expect([turnRate(odd), tokensPerForward(odd)]).toEqual([0, null]);
  });
});
