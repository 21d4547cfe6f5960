import { useTranslation } from 'react-i18next';
import { formatCount, formatPercent, formatRate } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import { Legend, Widget } from './widget';

/** The server behind this one: what it tells of its queue, its cache and its speed. */
export function UpstreamWidget() {
  const { t, i18n } = useTranslation('runtime');
  const upstream = useHealth()?.upstream;
  if (upstream === undefined) return null;
  const { language } = i18n;
  const figures = [
    { name: 'running', value: upstream.running, shown: formatCount },
    { name: 'waiting', value: upstream.waiting, shown: formatCount },
    { name: 'kv', value: upstream.kv_usage, shown: formatPercent },
    { name: 'rate', value: upstream.decode_rate, shown: formatRate },
    { name: 'hits', value: upstream.hit_ratio, shown: formatPercent },
  ] as const;
  const rows = figures.flatMap(({ name, value, shown }) =>
    value === null ? [] : [{ name, label: t(`upstream.${name}`), value: shown(value, language) }],
  );
  return (
    <Widget title={t('upstream.title')} aside={<span title={upstream.url}>{upstream.server}</span>}>
      <Legend rows={rows} />
    </Widget>
  );
}
