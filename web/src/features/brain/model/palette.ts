// The colour of an expert: its tier's, as bright as it is hot. Pure.
import { heatOf, tierOf, type Tier } from './expert-map';

export type Rgb = readonly [red: number, green: number, blue: number];
export type Palette = Readonly<Record<Tier, Rgb>>;

const DARKEST = 0.35;
const FULL_HEAT = 24;

/** The numbers of `rgb(1, 2, 3)`. */
export function parseRgb(text: string): Rgb {
  const [red = 0, green = 0, blue = 0] = (text.match(/[\d.]+/g) ?? []).map(Number);
  return [red, green, blue];
}

export function brightnessOf(heat: number): number {
  return DARKEST + (1 - DARKEST) * Math.min(heat / FULL_HEAT, 1);
}

export function colorOf(cell: number, palette: Palette): Rgb {
  const factor = brightnessOf(heatOf(cell));
  const [red, green, blue] = palette[tierOf(cell)];
  return [red * factor, green * factor, blue * factor];
}

/** Write a colour, `pulse` of the way to white, as one pixel. */
export function writePixel(
  pixels: Uint8ClampedArray,
  place: number,
  color: Rgb,
  pulse: number,
): void {
  for (let part = 0; part < 3; part += 1) {
    const value = color[part] ?? 0;
    pixels[4 * place + part] = value + (255 - value) * pulse;
  }
  pixels[4 * place + 3] = 255;
}
