// The looks of the points, which may follow the server's map of the experts, and their flashes.
import { useCallback, useEffect, useMemo, useRef } from 'react';
import type { Atlas } from '@/lib/atlas/atlas';
import { readMap, type Tier } from '@/lib/experts/expert-map';
import { onExperts, useExperts, useWatch } from '@/lib/telemetry/hooks';
import { darkTokenRgb, rgbOf, type Rgb } from '@/lib/token-color';
import type { GalaxyScene } from '../components/galaxy-scene';
import { topicColor, type Filter } from '../model/galaxy';
import {
  cellsOf,
  lookOf,
  type Color,
  type Coloring,
  type Look,
  type LookColors,
} from '../model/point-looks';

interface LiveLooks {
  look: (index: number) => Look;
  /** Whether the server tells where these experts are. */
  hasMap: boolean;
  onScene: (scene: GalaxyScene | null) => void;
}

export function useLiveLooks(atlas: Atlas, filter: Filter, coloring: Coloring): LiveLooks {
  useWatch('experts');
  const experts = useExperts();
  const map = useMemo(() => (experts === null ? null : readMap(experts)), [experts]);
  const colors = useMemo(() => lookColors(atlas.topics.length), [atlas]);
  const sceneRef = useRef<GalaxyScene | null>(null);
  useEffect(() => followHits(atlas, (indices) => sceneRef.current?.flash(indices)), [atlas]);
  // While topics give the colours, a new map changes nothing.
  const shown = coloring === 'topic' ? null : map;
  const look = useMemo(() => {
    const places = cellsOf(atlas, shown);
    return (index: number): Look => {
      const place = places[index] ?? -1;
      const cell = place < 0 ? undefined : shown?.cells[place];
      return lookOf(atlas, index, { filter, coloring, colors, cell });
    };
  }, [atlas, filter, coloring, colors, shown]);
  const onScene = useCallback((scene: GalaxyScene | null) => {
    sceneRef.current = scene;
  }, []);
  return { look, hasMap: map?.layers !== undefined, onScene };
}

/** Tell of the experts of the atlas in every new report; returns how to end that. */
function followHits(atlas: Atlas, tell: (indices: number[]) => void): () => void {
  let seq: number | null = null;
  return onExperts((experts) => {
    const map = readMap(experts);
    if (map === null || map.seq === seq) return;
    const isFirst = seq === null;
    seq = map.seq;
    if (isFirst) return;
    const used = new Set(map.hits);
    const places = cellsOf(atlas, map);
    tell([...places.keys()].filter((index) => used.has(places[index] ?? -1)));
  });
}

function lookColors(numTopics: number): LookColors {
  const share = ([red, green, blue]: Rgb): Color => [red / 255, green / 255, blue / 255];
  const tier = (name: Tier): Color => share(darkTokenRgb(`--tier-${name}`));
  return {
    topics: Array.from({ length: numTopics }, (_, index) => share(rgbOf(topicColor(index)))),
    tiers: { disk: tier('disk'), ram: tier('ram'), vram: tier('vram') },
    heat: [share(darkTokenRgb('--tier-disk')), [1, 0.86, 0.45]],
    unknown: share(darkTokenRgb('--line-strong')),
  };
}
