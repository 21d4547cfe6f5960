import { describe, expect, it } from 'vitest';
import { brightnessOf, colorOf } from './palette';

const PALETTE = { disk: [58, 71, 80], ram: [90, 155, 216], vram: [78, 214, 165] } as const;

describe('palette', () => {
  it('is brighter for hotter experts, up to full', () => {
    expect(brightnessOf(0)).toBeCloseTo(0.35);
    expect(brightnessOf(12)).toBeCloseTo(0.675);
    expect(brightnessOf(24)).toBe(1);
    expect(brightnessOf(63)).toBe(1);
  });

  it('has the colour of the tier', () => {
    expect(colorOf(0x98, PALETTE)).toEqual([78, 214, 165]);
    expect(colorOf(0x3f, PALETTE)).toEqual([58, 71, 80]);
    expect(colorOf(0x40, PALETTE)[0]).toBeCloseTo(90 * 0.35);
  });
});
