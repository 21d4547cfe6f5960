// The colour of an expert: its tier's, as bright as it is hot, and whiter while it flashes. Pure.
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

/** A colour `share` of the way to white. */
export function whitened([red, green, blue]: Rgb, share: number): Rgb {
  const part = (value: number): number => value + (255 - value) * share;
  return [part(red), part(green), part(blue)];
}

/** One number per pixel, as in `ImageData` on machines that store the lowest byte first. */
export function packed([red, green, blue]: Rgb): number {
  return (0xff000000 | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}
