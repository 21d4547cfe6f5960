import { useTranslation } from 'react-i18next';
import { formatCount, formatGigabytes } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import { Legend, ShareBar, Widget } from './widget';

export function TierWidget() {
  const { t, i18n } = useTranslation('runtime');
  const tiers = useHealth()?.tiers;
  if (tiers === undefined) return null;
  const { language } = i18n;
  const count = (value: number): string => formatCount(value, language);
  const total = tiers.vram + tiers.ram + tiers.disk;
  const label = t('tiers.summary', {
    vram: count(tiers.vram),
    ram: count(tiers.ram),
    disk: count(tiers.disk),
  });
  const rows = [
    { name: 'vram', color: '--tier-vram', value: tiers.vram, gb: tiers.vram_gb },
    { name: 'ram', color: '--tier-ram', value: tiers.ram, gb: tiers.ram_gb },
    { name: 'disk', color: '--tier-disk', value: tiers.disk, gb: 0 },
  ] as const;
  return (
    <Widget title={t('tiers.title')} aside={count(total)}>
      <ShareBar segments={rows} label={label} />
      <Legend
        rows={rows.map(({ name, color, value, gb }) => ({
          name,
          color,
          label: t(`tiers.${name}`),
          value: count(value),
          ...(gb > 0 ? { note: formatGigabytes(gb, language) } : {}),
        }))}
      />
    </Widget>
  );
}
