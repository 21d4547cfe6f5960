import { useTranslation } from 'react-i18next';
import { formatCount, formatGigabytes } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import { Legend, Widget } from './widget';

export function HardwareWidget() {
  const { t, i18n } = useTranslation('runtime');
  const hardware = useHealth()?.hwinfo;
  if (hardware === undefined) return null;
  const { language } = i18n;
  const size = (value: number): string => formatGigabytes(value, language);
  const rows = [];
  if (hardware.cpu !== '' || hardware.cores > 0) {
    const cores = t('hardware.cores', {
      count: hardware.cores,
      shown: formatCount(hardware.cores, language),
    });
    rows.push({
      name: 'cpu',
      label: t('hardware.cpu'),
      value: [hardware.cpu, hardware.cores > 0 ? cores : ''].filter(Boolean).join(', '),
    });
  }
  if (hardware.gpus > 0) {
    const name = `${formatCount(hardware.gpus, language)}× ${hardware.gpu || t('hardware.gpu')}`;
    rows.push({
      name: 'gpu',
      label: t('hardware.gpu'),
      value: hardware.vram_total_gb > 0 ? `${name}, ${size(hardware.vram_total_gb)}` : name,
    });
  }
  if (hardware.ram_total_gb > 0) {
    const free = size(hardware.ram_avail_gb);
    rows.push({
      name: 'ram',
      label: t('hardware.ram'),
      value: t('hardware.free', { free, total: size(hardware.ram_total_gb) }),
    });
  }
  if (hardware.backend) {
    rows.push({ name: 'backend', label: t('hardware.backend'), value: hardware.backend });
  }
  return rows.length === 0 ? null : (
    <Widget title={t('hardware.title')}>
      <Legend rows={rows} />
    </Widget>
  );
}
