// The colours of the tiers where a canvas stands.
import { parseRgb, tokenColor } from '@/lib/token-color';
import type { Palette } from '../model/palette';

export function readPalette(canvas: HTMLCanvasElement): Palette {
  const color = (token: string) => parseRgb(tokenColor(token, canvas.parentElement ?? undefined));
  return {
    disk: color('--tier-disk'),
    ram: color('--tier-ram'),
    vram: color('--tier-vram'),
  };
}
