// Where the experts of the atlas are in space, and which of them are shown. Pure.
import type { Atlas, AtlasExpert } from '@/lib/atlas/atlas';
import { keyOf, parseKey } from '@/lib/atlas/atlas';

export type Point = readonly [x: number, y: number, z: number];

const GOLDEN_ANGLE = Math.PI * (3 - Math.sqrt(5));
const JITTER = 0.07;

/** Places of the topics, evenly over a sphere of radius 1. */
export function anchors(count: number): Point[] {
  return Array.from({ length: count }, (_, index) => {
    const y = count === 1 ? 0 : 1 - (2 * (index + 0.5)) / count;
    const radius = Math.sqrt(1 - y * y);
    const angle = GOLDEN_ANGLE * index;
    return [radius * Math.cos(angle), y, radius * Math.sin(angle)] as const;
  });
}

/** A number from 0 to 1 that depends on the text alone (FNV-1a, then spread over all bits). */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let place = 0; place < text.length; place += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(place), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
}

/**
 * The topics' places, weighted by the affinities: specialists are near a topic, generalists in the
 * middle. A little is added by the expert's own number, so that equal ones do not hide each other.
 */
export function placeOf(expert: AtlasExpert, topics: readonly Point[]): Point {
  const key = keyOf(expert);
  const along = (axis: 0 | 1 | 2): number => {
    const sum = expert.p.reduce(
      (total, share, index) => total + share * (topics[index]?.[axis] ?? 0),
      0,
    );
    return sum + JITTER * (2 * hashOf(`${key}/${axis}`) - 1);
  };
  return [along(0), along(1), along(2)];
}

export interface Filter {
  /** Indices of the topics whose experts are hidden. */
  hiddenTopics: ReadonlySet<number>;
  /** The first and the last layer shown. */
  layers: readonly [number, number];
  isSpecialistsOnly: boolean;
}

export function noFilter(atlas: Atlas): Filter {
  const numbers = atlas.experts.map(({ layer }) => layer);
  return {
    hiddenTopics: new Set(),
    layers: [numbers[0] ?? 0, numbers.at(-1) ?? 0], // they come in order
    isSpecialistsOnly: false,
  };
}

export function isShown(expert: AtlasExpert, filter: Filter): boolean {
  const [first, last] = filter.layers;
  return (
    !filter.hiddenTopics.has(expert.top) &&
    expert.layer >= first &&
    expert.layer <= last &&
    (expert.isSpecialist || !filter.isSpecialistsOnly)
  );
}

/** The index of the expert that a search names as `layer:expert`; -1 if there is none. */
export function findExpert(atlas: Atlas, text: string): number {
  const key = parseKey(text);
  if (key === null) return -1;
  return atlas.experts.findIndex(
    ({ layer, expert }) => layer === key.layer && expert === key.expert,
  );
}

/** Indices of the shown experts, the most specialised first. */
export function bySpecialization(atlas: Atlas, filter: Filter): number[] {
  const { experts } = atlas;
  return experts
    .flatMap((expert, index) => (isShown(expert, filter) ? [index] : []))
    .sort((a, b) => (experts[b]?.specialization ?? 0) - (experts[a]?.specialization ?? 0) || a - b);
}

// Told apart by those who see fewer colours too: light and dark alternate (after Okabe and Ito, and
// Paul Tol). Behind them hues go on in steps that never meet.
// prettier-ignore
const COLORS = [
  '#e69f00', '#56b4e9', '#009e73', '#f0e442', '#3b82c4', '#d55e00', '#cc79a7', '#d8d8d8',
  '#8f6bd8', '#7fd34e', '#ff9da7', '#a87c5a',
] as const;

export function topicColor(index: number): string {
  return COLORS[index] ?? `hsl(${Math.round((index * 137.5) % 360)} 62% 62%)`;
}
