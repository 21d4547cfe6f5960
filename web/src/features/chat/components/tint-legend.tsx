// What the tint of tokens means.
import { useTranslation } from 'react-i18next';
import { formatPercent } from '@/lib/format';
import { useSampling } from '../model/sampling';
import styles from './tint-legend.module.css';

export function TintLegend() {
  const { t, i18n } = useTranslation('chat');
  const { tintSure, tintDoubtful } = useSampling((state) => state.sampling);
  const percent = (value: number): string => formatPercent(value, i18n.language);
  return (
    <p className={styles.legend}>
      <span>
        <i data-tint="unsure" aria-hidden="true" />
        {t('chances.legend.unsure', { share: percent(tintSure) })}
      </span>
      <span>
        <i data-tint="doubtful" aria-hidden="true" />
        {t('chances.legend.doubtful', { share: percent(tintDoubtful) })}
      </span>
      <span>{t('chances.legend.how')}</span>
    </p>
  );
}
