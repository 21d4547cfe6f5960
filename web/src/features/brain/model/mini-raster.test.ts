import { describe, expect, it } from 'vitest';
import { MiniRaster } from './mini-raster';

const PALETTE = { disk: [100, 0, 0], ram: [0, 100, 0], vram: [0, 0, 100] } as const;
const HOT_RAM = (1 << 6) | 24; // its tier's full colour
const HOT_VRAM = (2 << 6) | 24;

function colorsOf(raster: MiniRaster): number[][] {
  const bytes = new Uint8Array(raster.pixels.buffer);
  return Array.from(raster.pixels, (_, index) => [...bytes.slice(4 * index, 4 * index + 4)]);
}

describe('the small map', () => {
  it('has a pixel per expert, of its tier and heat', () => {
    const raster = new MiniRaster(1, 2, PALETTE);
    expect(raster.step(Uint8Array.of(HOT_RAM, HOT_VRAM))).toBe(false);
    expect(colorsOf(raster)).toEqual([
      [0, 100, 0, 255],
      [0, 0, 100, 255],
    ]);
  });

  it('fades a flash in three frames, white first, and ends it in a fourth', () => {
    const raster = new MiniRaster(1, 2, PALETTE);
    const cells = Uint8Array.of(HOT_RAM, HOT_RAM);
    raster.light([1]);
    const reds: number[] = [];
    const lit: boolean[] = [];
    for (let frame = 0; frame < 5; frame += 1) {
      lit.push(raster.step(cells));
      reds.push(colorsOf(raster)[1]?.[0] ?? -1);
    }
    expect(lit).toEqual([true, true, true, false, false]);
    expect(reds).toEqual([255, 128, 51, 0, 0]);
    expect(colorsOf(raster)[0]).toEqual([0, 100, 0, 255]);
  });

  it('shows a flash that begins again in full, and none after all were ended', () => {
    const raster = new MiniRaster(1, 1, PALETTE);
    const cells = Uint8Array.of(HOT_RAM);
    raster.light([0]);
    raster.step(cells);
    raster.light([0]);
    raster.step(cells);
    expect(colorsOf(raster)[0]).toEqual([255, 255, 255, 255]);
    raster.darken();
    expect(raster.step(cells)).toBe(false);
    expect(colorsOf(raster)[0]).toEqual([0, 100, 0, 255]);
  });
});
