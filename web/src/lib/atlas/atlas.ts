// What was measured of each expert: how much it prefers which topic. From `experts.json`, which
// `coli atlas analyze --web` writes; its research file is read as well. Pure.

export interface AtlasExpert {
  layer: number;
  expert: number;
  /** Affinity to each topic of the atlas; they add up to 1. */
  p: readonly number[];
  /** Index of the topic with the largest. */
  top: number;
  /** Of the affinities, in bits. */
  entropy: number;
  /** 1: one topic alone; 0: all alike. */
  specialization: number;
  isSpecialist: boolean;
}

export interface Atlas {
  topics: readonly string[];
  /** By layer and number. */
  experts: readonly AtlasExpert[];
  /** Entries that could not be read. */
  numSkipped: number;
}

const SPECIALIST = 0.5; // specialization from which on an expert is called one
const MOST = 1_000_000; // layers or experts of a layer; what is above is no number of one

type Entry = Readonly<Record<string, unknown>>;

function isEntry(value: unknown): value is Entry {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The atlas in a parsed file; null if it is none at all. */
export function readAtlas(data: unknown): Atlas | null {
  if (!isEntry(data) || !Array.isArray(data.categories)) return null;
  const topics = data.categories.filter((name) => typeof name === 'string');
  if (topics.length < 2 || new Set(topics).size !== data.categories.length) return null;
  const entries = entriesOf(data.experts);
  if (entries === null) return null;
  const found = new Map<string, AtlasExpert>();
  let numSkipped = 0;
  for (const [key, entry] of entries) {
    const expert = readExpert(key, entry, topics);
    if (expert === null || found.has(keyOf(expert))) numSkipped += 1;
    else found.set(keyOf(expert), expert);
  }
  const experts = [...found.values()].sort((a, b) => a.layer - b.layer || a.expert - b.expert);
  return { topics, experts, numSkipped };
}

/** `layer:expert`, as the file and the search field have it. */
export function keyOf({ layer, expert }: { layer: number; expert: number }): string {
  return `${layer}:${expert}`;
}

/** Layer and expert of such a key; null if it is none. */
export function parseKey(text: string): { layer: number; expert: number } | null {
  const [, layer, expert] = /^\s*(\d{1,6})\s*[:/]\s*(\d{1,6})\s*$/.exec(text) ?? [];
  if (layer === undefined || expert === undefined) return null;
  return { layer: Number(layer), expert: Number(expert) };
}

/** The topics of an expert, the largest first. */
export function topTopics(
  expert: AtlasExpert,
  topics: readonly string[],
  count: number,
): { topic: string; index: number; share: number }[] {
  return topics
    .map((topic, index) => ({ topic, index, share: expert.p[index] ?? 0 }))
    .sort((a, b) => b.share - a.share)
    .slice(0, count);
}

function entriesOf(experts: unknown): (readonly [string, unknown])[] | null {
  if (isEntry(experts)) return Object.entries(experts);
  if (!Array.isArray(experts)) return null;
  return experts.map((entry: unknown) => {
    const key = isEntry(entry) ? `${String(entry.layer)}:${String(entry.expert)}` : '';
    return [key, entry] as const;
  });
}

function readExpert(key: string, entry: unknown, topics: readonly string[]): AtlasExpert | null {
  const place = parseKey(key);
  if (place === null || !isEntry(entry)) return null;
  if (place.layer >= MOST || place.expert >= MOST) return null;
  const p = readAffinity(entry.affinity ?? entry.p, topics);
  if (p === null) return null;
  const entropy = p.reduce((sum, share) => (share > 0 ? sum - share * Math.log2(share) : sum), 0);
  const specialization = Math.max(0, 1 - entropy / Math.log2(topics.length));
  const label = typeof entry.label === 'string' ? entry.label : null;
  return {
    ...place,
    p,
    top: p.indexOf(Math.max(...p)),
    entropy,
    specialization,
    // The file says who is one: who wrote it had more digits.
    isSpecialist:
      label === null ? specialization >= SPECIALIST : label.toLowerCase().startsWith('specialist'),
  };
}

/** Shares that add up to 1, in the order of the topics; null if they make no sense. */
function readAffinity(value: unknown, topics: readonly string[]): number[] | null {
  const p = topics.map(() => 0);
  const given: (readonly [number, unknown])[] = Array.isArray(value)
    ? value.map((share: unknown, index) => [index, share] as const)
    : isEntry(value)
      ? Object.entries(value).map(([name, share]) => [topics.indexOf(name), share] as const)
      : [];
  for (const [index, share] of given) {
    if (index < 0 || index >= topics.length) return null;
    if (typeof share !== 'number' || !Number.isFinite(share) || share < 0) return null;
    p[index] = share;
  }
  const sum = p.reduce((total, share) => total + share, 0);
  return sum > 0 ? p.map((share) => share / sum) : null;
}
