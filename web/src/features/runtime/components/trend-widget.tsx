import { useTranslation } from 'react-i18next';
import { Sparkline } from '@/components/sparkline';
import { formatRate } from '@/lib/format';
import { useTurns } from '@/lib/telemetry/hooks';
import { turnRate } from '@/lib/telemetry/phases';
import { Widget } from './widget';

const NUM_SHOWN = 40;

export function TrendWidget() {
  const { t, i18n } = useTranslation('runtime');
  const rates = useTurns().slice(-NUM_SHOWN).map(turnRate);
  const now = rates.at(-1);
  if (now === undefined) return null;
  const rate = (value: number): string => formatRate(value, i18n.language);
  const label = t('trend.label', {
    count: rates.length,
    low: rate(Math.min(...rates)),
    high: rate(Math.max(...rates)),
  });
  return (
    <Widget title={t('trend.title')} aside={t('trend.now', { rate: rate(now) })}>
      <Sparkline values={rates} label={label} />
    </Widget>
  );
}
