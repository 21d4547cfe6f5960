// The colour of an expert: its tier's, as bright as it is hot. Pure.
import { heatOf, tierOf, type Tier } from '@/lib/experts/expert-map';
import type { Rgb } from '@/lib/token-color';

export type Palette = Readonly<Record<Tier, Rgb>>;

const DARKEST = 0.35;
const FULL_HEAT = 24;

export function brightnessOf(heat: number): number {
  return DARKEST + (1 - DARKEST) * Math.min(heat / FULL_HEAT, 1);
}

export function colorOf(cell: number, palette: Palette): Rgb {
  const factor = brightnessOf(heatOf(cell));
  const [red, green, blue] = palette[tierOf(cell)];
  return [red * factor, green * factor, blue * factor];
}
