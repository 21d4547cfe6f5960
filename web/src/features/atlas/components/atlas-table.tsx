// The shown experts as a table, the most specialised first. Built only while it is open.
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { keyOf, type Atlas } from '@/lib/atlas/atlas';
import { formatCount, formatDecimal, formatPercent } from '@/lib/format';
import { bySpecialization, type Filter } from '../model/galaxy';
import styles from './atlas-table.module.css';

const PAGE = 50;

interface AtlasTableProps {
  atlas: Atlas;
  filter: Filter;
  onSelect: (index: number) => void;
}

export function AtlasTable(props: AtlasTableProps) {
  const { t } = useTranslation('atlas');
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details className={styles.details} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>{t('table.open')}</summary>
      {isOpen && <Rows {...props} />}
    </details>
  );
}

function Rows({ atlas, filter, onSelect }: AtlasTableProps) {
  const { t, i18n } = useTranslation('atlas');
  const [numShown, setNumShown] = useState(PAGE);
  const { language } = i18n;
  const order = bySpecialization(atlas, filter);
  return (
    <>
      <table className={styles.table}>
        <thead>
          <tr>
            {(['expert', 'topic', 'share', 'entropy', 'specialization'] as const).map((name) => (
              <th key={name} scope="col">
                {t(`table.${name}`)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {order.slice(0, numShown).map((index) => {
            const expert = atlas.experts[index];
            if (expert === undefined) return null;
            return (
              <tr key={index}>
                <th scope="row">
                  <button type="button" onClick={() => onSelect(index)}>
                    {keyOf(expert)}
                  </button>
                </th>
                <td>{atlas.topics[expert.top]}</td>
                <td>{formatPercent(expert.p[expert.top] ?? 0, language)}</td>
                <td>{formatDecimal(expert.entropy, 2, language)}</td>
                <td>{formatDecimal(expert.specialization, 2, language)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {order.length > numShown && (
        <Button onClick={() => setNumShown(numShown + PAGE)}>
          {t('table.more', { shown: formatCount(order.length - numShown, language) })}
        </Button>
      )}
    </>
  );
}
