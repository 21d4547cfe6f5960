// The map as numbers: a line per layer. Built only while it is open.
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { formatCount, formatDecimal } from '@/lib/format';
import { useExpertWords } from '../hooks/use-expert-words';
import { countTiers, type ExpertMap } from '@/lib/experts/expert-map';
import styles from './layer-table.module.css';

export function LayerTable({ map }: { map: ExpertMap }) {
  const { t } = useTranslation('brain');
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details className={styles.details} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>{t('table.open')}</summary>
      {isOpen && <Lines map={map} />}
    </details>
  );
}

function Lines({ map }: { map: ExpertMap }) {
  const { t, i18n } = useTranslation('brain');
  const words = useExpertWords(map);
  const { rows, cols } = map;
  const used = new Array<number>(rows).fill(0);
  for (const index of map.hits) {
    const row = Math.floor(index / cols);
    used[row] = (used[row] ?? 0) + 1;
  }
  return (
    <table className={styles.table}>
      <thead>
        <tr>
          <th scope="col">{t('table.layer')}</th>
          <th scope="col">{t('tier.vram')}</th>
          <th scope="col">{t('tier.ram')}</th>
          <th scope="col">{t('tier.disk')}</th>
          <th scope="col">{t('legend.used')}</th>
          {map.entropy !== undefined && <th scope="col">{t('table.entropy')}</th>}
        </tr>
      </thead>
      <tbody>
        {used.map((count, row) => {
          const tiers = countTiers(map.cells.subarray(row * cols, (row + 1) * cols));
          return (
            <tr key={words.layer(row)}>
              <th scope="row">{words.layer(row)}</th>
              {[tiers.vram, tiers.ram, tiers.disk, count].map((value, place) => (
                <td key={place}>{formatCount(value, i18n.language)}</td>
              ))}
              {map.entropy !== undefined && (
                <td>{formatDecimal(map.entropy[row] ?? 0, 2, i18n.language)}</td>
              )}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
