import { useTranslation } from 'react-i18next';
import { formatCount, formatRate } from '@/lib/format';
import { useHealth, useProgress } from '@/lib/telemetry/hooks';
import { Legend, Widget } from './widget';

/** What each KV slot is doing. */
export function SlotsWidget() {
  const { t, i18n } = useTranslation('runtime');
  const health = useHealth();
  const progress = useProgress();
  const numSlots = health?.kv_slots ?? 0;
  // A server behind has none that we know; how many requests run, the scheduler's block tells.
  if (numSlots === 0 || health?.upstream !== undefined) return null;
  const { language } = i18n;
  const busy = progress?.slots ?? health?.slots ?? [];
  const rows = Array.from({ length: numSlots }, (_, index) => {
    const slot = busy.find((entry) => (entry.slot ?? 0) === index);
    const value =
      slot === undefined
        ? t('slots.idle')
        : slot.state === 'prefill'
          ? t('slots.prefill', {
              done: formatCount(slot.prefilled_tokens, language),
              total: formatCount(slot.prompt_tokens, language),
            })
          : t('slots.decode', {
              generated: formatCount(slot.generated, language),
              rate: formatRate(slot.tokens_per_second, language),
            });
    return {
      name: `slot-${index}`,
      color: slot === undefined ? '--line-strong' : '--accent',
      label: t('slots.name', { slot: index + 1 }),
      value,
    };
  });
  return (
    <Widget title={t('slots.title')} aside={formatCount(numSlots, language)}>
      <Legend rows={rows} />
    </Widget>
  );
}
