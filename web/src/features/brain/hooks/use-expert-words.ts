// An expert in words: for the tip beside it, and for those who hear the page.
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { keyOf, topTopics } from '@/lib/atlas/atlas';
import { useAtlas } from '@/lib/atlas/use-atlas';
import { formatCount, formatDecimal, formatPercent } from '@/lib/format';
import {
  countRange,
  depthBand,
  heatOf,
  layerName,
  tierOf,
  type ExpertMap,
  type Tier,
} from '@/lib/experts/expert-map';

const NUM_TOPICS = 3;

export interface ExpertWords {
  name: string;
  tier: Tier;
  tierName: string;
  heat: string;
  isUsed: boolean;
  used: string;
  /** What it prefers, where that was measured; else what layers this deep usually do. */
  role: string;
}

export interface Words {
  layer: (row: number) => string;
  /** The layer's number alone, for the edge of the map. */
  shortLayer: (row: number) => string;
  expert: (index: number) => ExpertWords;
}

export function useExpertWords(map: ExpertMap): Words {
  const { t, i18n } = useTranslation('brain');
  const state = useAtlas();
  const atlas = state.status === 'ready' ? state.atlas : null;
  return useMemo(() => {
    const measuredOf = new Map((atlas?.experts ?? []).map((one) => [keyOf(one), one] as const));
    const count = (value: number): string => formatCount(value, i18n.language);
    const layer = (row: number): string => {
      const { kind, number } = layerName(map, row);
      return t(`layer.${kind}`, { number });
    };
    const heatWords = (heat: number): string => {
      const [least, most] = countRange(heat);
      if (most <= 1) return t(most === 0 ? 'heat.never' : 'heat.once');
      return t('heat.range', { least: count(least), most: count(most) });
    };
    const used = new Set(map.hits);
    const roleWords = (row: number, expert: number): string => {
      const layerNumber = map.layers?.[row];
      const measured = measuredOf.get(`${layerNumber ?? ''}:${expert}`);
      if (measured === undefined || atlas === null) return t(`depth.${depthBand(map, row)}`);
      const topics = topTopics(measured, atlas.topics, NUM_TOPICS)
        .map(({ topic, share }) => `${topic} ${formatPercent(share, i18n.language)}`)
        .join(', ');
      return t(measured.isSpecialist ? 'role.specialist' : 'role.generalist', {
        bits: formatDecimal(measured.entropy, 2, i18n.language),
        topics,
      });
    };
    return {
      layer,
      shortLayer: (row) => {
        const { kind, number } = layerName(map, row);
        return kind === 'mtp' ? 'MTP' : String(number);
      },
      expert: (index) => {
        const cell = map.cells[index] ?? 0;
        const tier = tierOf(cell);
        const row = Math.floor(index / map.cols);
        return {
          name: t('expert.name', { layer: layer(row), expert: index % map.cols }),
          tier,
          tierName: t(`tier.${tier}`),
          heat: heatWords(heatOf(cell)),
          isUsed: used.has(index),
          used: t('expert.used'),
          role: roleWords(row, index % map.cols),
        };
      },
    };
  }, [map, atlas, t, i18n.language]);
}
