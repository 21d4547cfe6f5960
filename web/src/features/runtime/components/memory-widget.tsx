import { useTranslation } from 'react-i18next';
import { formatGigabytes } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import { Legend, ShareBar, Widget } from './widget';

/** What the engine holds of the machine's memory. */
export function MemoryWidget() {
  const { t, i18n } = useTranslation('runtime');
  const health = useHealth();
  const used = health?.engine?.rss_gb ?? 0;
  const total = health?.hwinfo?.ram_total_gb ?? 0;
  if (used === 0 || total === 0) return null;
  const free = Math.min(total - used, health?.hwinfo?.ram_avail_gb ?? 0);
  const size = (value: number): string => formatGigabytes(value, i18n.language);
  const others = Math.max(0, total - used - free);
  return (
    <Widget title={t('memory.title')} aside={size(total)}>
      <ShareBar
        label={t('memory.label', { used: size(used), total: size(total), free: size(free) })}
        segments={[
          { name: 'engine', value: used, color: '--accent' },
          { name: 'others', value: others, color: '--line-strong' },
          { name: 'free', value: free, color: '--line' },
        ]}
      />
      <Legend
        rows={[{ name: 'engine', color: '--accent', label: t('memory.engine'), value: size(used) }]}
      />
    </Widget>
  );
}
