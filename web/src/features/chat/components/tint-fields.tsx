// Whether tokens are tinted by their probability, and from where on.
import { useId } from 'react';
import { useTranslation } from 'react-i18next';
import { Field } from '@/components/field';
import { formatPercent } from '@/lib/format';
import { useSampling } from '../model/sampling';
import styles from './inference-group.module.css';

export function TintFields() {
  const { t, i18n } = useTranslation('settings');
  const id = useId();
  const { sampling, change } = useSampling();
  const { isTinted, tintSure, tintDoubtful } = sampling;
  return (
    <>
      <label className={styles.switch} htmlFor={id}>
        <input
          id={id}
          type="checkbox"
          checked={isTinted}
          onChange={(event) => change({ isTinted: event.target.checked })}
        />
        {t('inference.tint.switch')}
      </label>
      {isTinted && (
        <div className={styles.pair}>
          <Bound
            label={t('inference.tint.unsure', { share: formatPercent(tintSure, i18n.language) })}
            value={tintSure}
            onChange={(value) =>
              change({ tintSure: value, tintDoubtful: Math.min(value, tintDoubtful) })
            }
          />
          <Bound
            label={t('inference.tint.doubtful', {
              share: formatPercent(tintDoubtful, i18n.language),
            })}
            value={tintDoubtful}
            onChange={(value) =>
              change({ tintDoubtful: value, tintSure: Math.max(value, tintSure) })
            }
          />
        </div>
      )}
    </>
  );
}

interface BoundProps {
  label: string;
  value: number;
  onChange: (value: number) => void;
}

function Bound({ label, value, onChange }: BoundProps) {
  return (
    <Field label={label}>
      {(ids) => (
        <input
          {...ids}
          type="range"
          min={0}
          max={1}
          step={0.05}
          value={value}
          onChange={(event) => onChange(Number(event.target.value))}
        />
      )}
    </Field>
  );
}
