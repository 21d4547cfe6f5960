// Where experts are and how hot they are, from the hex of `/experts`. Pure.
import type { Experts } from '@/lib/schemas';

/** By the number that the server uses for each. */
export const TIERS = ['disk', 'ram', 'vram'] as const;
export type Tier = (typeof TIERS)[number];

export interface ExpertMap {
  rows: number;
  cols: number;
  /** One byte per expert, row by row: tier * 64 + heat. */
  cells: Uint8Array;
  /** The experts used since the update before, ascending. */
  hits: Uint32Array;
  /** Grows with every report of used experts. */
  seq: number;
  /** Number of each row's layer in the model, where the server tells it. */
  layers: readonly number[] | undefined;
  /** The row that drafts tokens, if there is one. */
  mtpRow: number | undefined;
  /** How evenly each row spread its choices, in bits, where the server tells it. */
  entropy: readonly number[] | undefined;
}

const HEAT_BITS = 6;
const HEAT_MASK = 63;

const NO_DIGIT = 255;
const DIGITS = new Uint8Array(128).fill(NO_DIGIT);
for (let value = 0; value < 16; value += 1) {
  const digit = value.toString(16);
  DIGITS[digit.charCodeAt(0)] = value;
  DIGITS[digit.toUpperCase().charCodeAt(0)] = value;
}

/** The bytes of hex text; null if it is none. */
export function bytesOfHex(text: string): Uint8Array | null {
  if (text.length % 2 !== 0) return null;
  const bytes = new Uint8Array(text.length / 2);
  for (let i = 0; i < bytes.length; i += 1) {
    const high = DIGITS[text.charCodeAt(2 * i)] ?? NO_DIGIT;
    const low = DIGITS[text.charCodeAt(2 * i + 1)] ?? NO_DIGIT;
    if (high === NO_DIGIT || low === NO_DIGIT) return null;
    bytes[i] = (high << 4) | low;
  }
  return bytes;
}

/** Which bits are set, lowest bit of each byte first, below `count`. */
export function setBits(bytes: Uint8Array, count: number): Uint32Array {
  const found: number[] = [];
  bytes.forEach((byte, place) => {
    for (let bit = 0; bit < 8; bit += 1) {
      const index = 8 * place + bit;
      if ((byte >> bit) & 1 && index < count) found.push(index);
    }
  });
  return Uint32Array.from(found);
}

const known = new WeakMap<Experts, ExpertMap | null>();

/** The map that the server sent; null if its parts do not fit together. Read once for all. */
export function readMap(experts: Experts): ExpertMap | null {
  let map = known.get(experts);
  if (map === undefined) known.set(experts, (map = parseMap(experts)));
  return map;
}

function parseMap(experts: Experts): ExpertMap | null {
  const { rows, cols, seq, layers, entropy, mtp_row: mtpRow } = experts;
  const cells = bytesOfHex(experts.map);
  const bits = bytesOfHex(experts.hits);
  const isShape = Number.isInteger(rows) && Number.isInteger(cols) && rows > 0 && cols > 0;
  if (!isShape || cells?.length !== rows * cols || bits === null) return null;
  if (cells.some((cell) => tierNumber(cell) >= TIERS.length)) return null;
  return {
    rows,
    cols,
    cells,
    hits: setBits(bits, cells.length),
    seq,
    layers: layers?.length === rows ? layers : undefined,
    mtpRow,
    entropy: entropy?.length === rows ? entropy : undefined,
  };
}

function tierNumber(cell: number): number {
  return cell >> HEAT_BITS;
}

export function tierOf(cell: number): Tier {
  return TIERS[tierNumber(cell)] ?? 'disk';
}

export function heatOf(cell: number): number {
  return cell & HEAT_MASK;
}

/** How often an expert with this heat was chosen, as [least, most]; heat is a count's bit length. */
export function countRange(heat: number): [number, number] {
  return heat === 0 ? [0, 0] : [2 ** (heat - 1), 2 ** heat - 1];
}

/** How many of the cells are in each tier. */
export function countTiers(cells: Uint8Array): Record<Tier, number> {
  const counts = { disk: 0, ram: 0, vram: 0 };
  for (const cell of cells) counts[tierOf(cell)] += 1;
  return counts;
}

export interface LayerName {
  /** `moe`: the server did not tell; counted from 1 among the layers that have experts. */
  kind: 'layer' | 'mtp' | 'moe';
  number: number;
}

export function layerName(map: Pick<ExpertMap, 'layers' | 'mtpRow'>, row: number): LayerName {
  const number = map.layers?.[row];
  if (row === map.mtpRow) return { kind: 'mtp', number: number ?? row + 1 };
  return number === undefined ? { kind: 'moe', number: row + 1 } : { kind: 'layer', number };
}

export const DEPTH_BANDS = ['surface', 'phrase', 'meaning', 'planning', 'output', 'draft'] as const;
export type DepthBand = (typeof DEPTH_BANDS)[number];
const BAND_ENDS = [0.2, 0.45, 0.7, 0.9, 1]; // of the depth; a rule of thumb, nothing measured

/** What layers as deep as this row are usually said to do. */
export function depthBand(map: Pick<ExpertMap, 'rows' | 'mtpRow'>, row: number): DepthBand {
  if (row === map.mtpRow) return 'draft';
  const rows = map.mtpRow === undefined ? map.rows : map.rows - 1;
  return DEPTH_BANDS[BAND_ENDS.findIndex((end) => row / rows < end)] ?? 'output';
}
