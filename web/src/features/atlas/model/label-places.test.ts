import { describe, expect, it } from 'vitest';
import { spreadLabels, type Label } from './label-places';

const ROOM = { width: 600, height: 400 };

function label(x: number, y: number, facing = 0.5, width = 60): Label {
  return { x, y, width, height: 18, facing };
}

/** How many pairs of names cover each other where they were placed. */
function covered(labels: readonly Label[]): number {
  const places = spreadLabels(labels, ROOM);
  return places.filter((one, index) =>
    places.some((other, at) => {
      const [a, b] = [labels[index], labels[at]];
      if (at <= index || a === undefined || b === undefined) return false;
      return (
        Math.abs(one.x - other.x) < (a.width + b.width) / 2 &&
        Math.abs(one.y - other.y) < (a.height + b.height) / 2
      );
    }),
  ).length;
}

describe('names over the galaxy', () => {
  it('stay where they are if they are in nobody’s way', () => {
    expect(spreadLabels([label(100, 100), label(300, 100)], ROOM)).toEqual([
      { x: 100, y: 100 },
      { x: 300, y: 100 },
    ]);
  });

  it('give way to those in front of them, by as little as it takes', () => {
    const [back, front] = spreadLabels([label(100, 104, 0.1), label(110, 100, 0.9)], ROOM);
    expect(front).toEqual({ x: 110, y: 100 });
    expect(back).toEqual({ x: 100, y: 120 });
  });

  it('stay whole within the picture', () => {
    expect(spreadLabels([label(0, 500)], ROOM)).toEqual([{ x: 38, y: 383 }]);
    expect(covered([label(0, 0, 0.9), label(5, 3, 0.5), label(2, 1, 0.1)])).toBe(0);
  });

  it('never cover each other, wherever ten topics are turned to', () => {
    for (let turn = 0; turn < 360; turn += 3) {
      const labels = Array.from({ length: 10 }, (_, index) => {
        const angle = ((turn + 36 * index) * Math.PI) / 180;
        const across = 300 + 150 * Math.cos(angle);
        return label(across, 200 + 8 * Math.sin(3 * angle), Math.sin(angle) / 2 + 0.5, 90);
      });
      expect(covered(labels)).toBe(0);
    }
  });
});
