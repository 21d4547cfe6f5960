import { useTranslation } from 'react-i18next';
import { formatCount } from '@/lib/format';
import { useSessionTotals } from '@/lib/telemetry/session-totals';
import { Legend, Widget } from './widget';

/** Tokens of the answers since the page was opened. */
export function SessionWidget() {
  const { t, i18n } = useTranslation('runtime');
  const { prompt, completion } = useSessionTotals();
  if (prompt + completion === 0) return null;
  const count = (value: number): string => formatCount(value, i18n.language);
  return (
    <Widget title={t('session.title')} aside={count(prompt + completion)}>
      <Legend
        rows={[
          { name: 'prompt', label: t('session.prompt'), value: count(prompt) },
          { name: 'completion', label: t('session.completion'), value: count(completion) },
        ]}
      />
    </Widget>
  );
}
