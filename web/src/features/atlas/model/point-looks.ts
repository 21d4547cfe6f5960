// How each expert of the galaxy looks: hidden or not, large or small, and in which colour. Pure.
import type { Atlas } from '@/lib/atlas/atlas';
import { heatOf, tierOf, type ExpertMap, type Tier } from '@/lib/experts/expert-map';
import { isShown, type Filter } from './galaxy';

export type Color = readonly [red: number, green: number, blue: number];
export const COLORINGS = ['topic', 'tier', 'heat'] as const;
export type Coloring = (typeof COLORINGS)[number];

export interface Look {
  color: Color;
  /** 0 hides the point. */
  size: number;
}

export interface LookColors {
  topics: readonly Color[];
  tiers: Readonly<Record<Tier, Color>>;
  /** From the coldest to the hottest. */
  heat: readonly [Color, Color];
  unknown: Color;
}

const SIZE = { specialist: 8, generalist: 4 } as const;
const FULL_HEAT = 24;

/** The place of each expert of the atlas on the server's map; -1 where it has none. */
export function cellsOf(atlas: Atlas, map: ExpertMap | null): Int32Array {
  const rows = new Map((map?.layers ?? []).map((layer, row) => [layer, row] as const));
  const found = atlas.experts.map(({ layer, expert }) => {
    const row = rows.get(layer);
    return map === null || row === undefined || expert >= map.cols ? -1 : row * map.cols + expert;
  });
  return Int32Array.from(found);
}

export function lookOf(
  atlas: Atlas,
  index: number,
  shown: { filter: Filter; coloring: Coloring; colors: LookColors; cell: number | undefined },
): Look {
  const expert = atlas.experts[index];
  const { filter, coloring, colors, cell } = shown;
  if (expert === undefined || !isShown(expert, filter)) return { color: colors.unknown, size: 0 };
  const size = expert.isSpecialist ? SIZE.specialist : SIZE.generalist;
  if (coloring === 'topic') return { color: colors.topics[expert.top] ?? colors.unknown, size };
  if (cell === undefined) return { color: colors.unknown, size };
  if (coloring === 'tier') return { color: colors.tiers[tierOf(cell)], size };
  const share = Math.min(heatOf(cell) / FULL_HEAT, 1);
  const [cold, hot] = colors.heat;
  const part = (place: 0 | 1 | 2): number => cold[place] + (hot[place] - cold[place]) * share;
  return { color: [part(0), part(1), part(2)], size };
}
