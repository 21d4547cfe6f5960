import { describe, expect, it } from 'vitest';
import { Pulses } from './pulses';

function levelsAt(pulses: Pulses, now: number): Map<number, number> {
  const levels = new Map<number, number>();
  pulses.visit(now, (index, level) => levels.set(index, level));
  return levels;
}

describe('pulses', () => {
  it('begin at full, fade, and end with a last word', () => {
    const pulses = new Pulses(8);
    pulses.start([2, 5]);
    expect([...levelsAt(pulses, 1000)]).toEqual([
      [2, 1],
      [5, 1],
    ]);
    expect(levelsAt(pulses, 1187).get(2)).toBeCloseTo(0.5, 2);
    expect(levelsAt(pulses, 2300).get(2)).toBe(0);
    expect(pulses.isIdle).toBe(true);
    expect(levelsAt(pulses, 2400).size).toBe(0);
  });

  it.each([30, 60, 120])('are as bright at %i frames a second', (rate) => {
    const pulses = new Pulses(1);
    pulses.start([0]);
    let last = 1;
    for (let frame = 0; frame <= rate / 2; frame += 1) {
      last = levelsAt(pulses, (1000 * frame) / rate).get(0) ?? 0;
    }
    expect(last).toBeCloseTo(Math.exp(-500 / 270), 5);
  });

  it('begin anew when an expert is used again, as one flash', () => {
    const pulses = new Pulses(4);
    pulses.start([1]);
    levelsAt(pulses, 0);
    pulses.start([1, 3]);
    expect([...levelsAt(pulses, 500)]).toEqual([
      [1, 1],
      [3, 1],
    ]);
  });
});
