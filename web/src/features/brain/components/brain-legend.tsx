// What the colours of the map say, with the number of experts in each tier.
import { useTranslation } from 'react-i18next';
import { formatCount, formatPercent } from '@/lib/format';
import { countTiers, type ExpertMap } from '@/lib/experts/expert-map';
import styles from './brain-legend.module.css';

const ORDER = ['vram', 'ram', 'disk'] as const;

export function BrainLegend({ map }: { map: ExpertMap }) {
  const { t, i18n } = useTranslation('brain');
  const counts = countTiers(map.cells);
  return (
    <dl className={styles.legend} aria-label={t('legend.label')}>
      {ORDER.map((tier) => (
        <div key={tier} data-tier={tier}>
          <dt>
            <i style={{ background: `var(--tier-${tier})` }} />
            {t(`tier.${tier}`)}
          </dt>
          <dd>
            {formatCount(counts[tier], i18n.language)}
            <small>{formatPercent(counts[tier] / map.cells.length, i18n.language)}</small>
          </dd>
        </div>
      ))}
      <div data-tier="used">
        <dt>
          <i className={styles.flash} />
          {t('legend.used')}
        </dt>
        <dd>{formatCount(map.hits.length, i18n.language)}</dd>
      </div>
      <div>
        <dt>{t('legend.heat')}</dt>
        <dd className={styles.words}>
          {t('legend.cold')}
          <i className={styles.ramp} />
          {t('legend.hot')}
        </dd>
      </div>
      {map.entropy !== undefined && (
        <div>
          <dt>
            <i className={styles.spread} />
            {t('legend.spread')}
          </dt>
        </div>
      )}
    </dl>
  );
}
