// An expert in words: for the tip beside it, and for those who hear the page.
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { formatCount } from '@/lib/format';
import {
  countRange,
  heatOf,
  layerName,
  tierOf,
  type ExpertMap,
  type Tier,
} from '../model/expert-map';

export interface ExpertWords {
  name: string;
  tier: Tier;
  tierName: string;
  heat: string;
  isUsed: boolean;
  used: string;
}

export interface Words {
  layer: (row: number) => string;
  /** The layer's number alone, for the edge of the map. */
  shortLayer: (row: number) => string;
  expert: (index: number) => ExpertWords;
}

export function useExpertWords(map: ExpertMap): Words {
  const { t, i18n } = useTranslation('brain');
  return useMemo(() => {
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
        };
      },
    };
  }, [map, t, i18n.language]);
}
