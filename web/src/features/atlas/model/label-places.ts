// Names over the galaxy without one covering another. Pure.

/** A name by its middle, in pixels. */
export interface Label {
  x: number;
  y: number;
  width: number;
  height: number;
  /** How much its topic faces the viewer, 0 to 1. */
  facing: number;
}

const EDGE = 8; // pixels kept from the edge
const GAP = 2; // and between names

/**
 * Where the middles of the names go: whole within the picture, and those farther back moved up or
 * down, as little as it takes, to leave those in front alone.
 */
export function spreadLabels(
  labels: readonly Label[],
  room: { width: number; height: number },
): { x: number; y: number }[] {
  const placed: Label[] = [];
  const found = labels.map(({ x, y }) => ({ x, y }));
  const fromFront = labels.map((_, index) => index);
  fromFront.sort((a, b) => (labels[b]?.facing ?? 0) - (labels[a]?.facing ?? 0));
  for (const index of fromFront) {
    const label = labels[index];
    if (label === undefined) continue;
    const wanted = {
      ...label,
      x: within(label.x, label.width / 2, room.width),
      y: within(label.y, label.height / 2, room.height),
    };
    const beside = placed.filter((other) => isAcross(wanted, other));
    const heights = beside.flatMap((other) => {
      const away = (other.height + wanted.height) / 2 + GAP;
      return [other.y - away, other.y + away];
    });
    heights.sort((a, b) => Math.abs(a - wanted.y) - Math.abs(b - wanted.y));
    const y = [wanted.y, ...heights].find(
      (height) =>
        height === within(height, wanted.height / 2, room.height) &&
        beside.every((other) => !isAbeam(height, wanted, other)),
    );
    const place = { ...wanted, y: y ?? wanted.y };
    placed.push(place);
    found[index] = { x: place.x, y: place.y };
  }
  return found;
}

function within(middle: number, half: number, size: number): number {
  return Math.max(EDGE + half, Math.min(middle, size - EDGE - half));
}

function isAcross(one: Label, other: Label): boolean {
  return Math.abs(one.x - other.x) < (one.width + other.width) / 2 + GAP;
}

function isAbeam(y: number, one: Label, other: Label): boolean {
  // Rounding must not make of those that touch ones that overlap.
  return Math.abs(y - other.y) < (one.height + other.height) / 2 + GAP - 1e-6;
}
