import { useTranslation } from 'react-i18next';
import { formatCount, formatGigabytes } from '@/lib/format';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { Legend, ShareBar, Widget } from './widget';

/** Memory and experts of each GPU, if the engine tells of any. */
export function GpuWidget() {
  const { t, i18n } = useTranslation('runtime');
  const gpus = useTelemetry((state) => state.experts?.gpus) ?? [];
  if (gpus.length === 0) return null;
  const size = (value: number): string => formatGigabytes(value, i18n.language);
  return (
    <Widget title={t('gpus.title')}>
      {gpus.map((gpu, index) => {
        const memory = t('gpus.memory', { used: size(gpu.used_gb), total: size(gpu.total_gb) });
        const experts = t('gpus.experts', { shown: formatCount(gpu.experts, i18n.language) });
        return (
          <div key={index}>
            <Legend
              rows={[{ name: `gpu-${index}`, label: `G${index}`, value: experts, note: memory }]}
            />
            <ShareBar
              label={`G${index}: ${memory}, ${experts}`}
              segments={[
                { name: 'used', value: gpu.used_gb, color: '--tier-vram' },
                { name: 'free', value: Math.max(0, gpu.total_gb - gpu.used_gb), color: '--line' },
              ]}
            />
          </div>
        );
      })}
    </Widget>
  );
}
