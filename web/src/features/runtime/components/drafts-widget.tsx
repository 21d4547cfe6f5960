import { useTranslation } from 'react-i18next';
import { formatDecimal } from '@/lib/format';
import { useTurns } from '@/lib/telemetry/hooks';
import { tokensPerForward } from '@/lib/telemetry/phases';
import { Legend, Widget } from './widget';

/** How many tokens a step of the model brings: more than one if drafts are right. */
export function DraftsWidget() {
  const { t, i18n } = useTranslation('runtime');
  const turn = useTurns().at(-1);
  const value = turn === undefined ? null : tokensPerForward(turn);
  if (value === null) return null;
  return (
    <Widget title={t('drafts.title')}>
      <Legend
        rows={[
          {
            name: 'per-forward',
            label: t('drafts.perForward'),
            value: formatDecimal(value, 2, i18n.language),
          },
        ]}
      />
    </Widget>
  );
}
