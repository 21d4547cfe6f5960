// Settings of how answers are drawn.
import { useId } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { Field, FieldGroup } from '@/components/field';
import { useModelEntry } from '@/lib/connection/connection-store';
import { formatCount, formatDecimal } from '@/lib/format';
import { useHealth } from '@/lib/telemetry/hooks';
import { DEFAULT_SAMPLING, MAX_TOKENS_RANGE, useSampling } from '../model/sampling';
import styles from './inference-group.module.css';
import { PresetButtons } from './preset-buttons';
import { TintFields } from './tint-fields';

export function InferenceGroup() {
  const { t, i18n } = useTranslation('settings');
  const { sampling, change } = useSampling();
  const cap = useModelEntry()?.max_output_tokens;
  const isColibri = useHealth()?.scheduler !== undefined;
  const isCapped = cap !== undefined && sampling.maxTokens > cap;
  const number = (text: string): number | null => (text === '' ? null : Number(text));
  return (
    <FieldGroup title={t('inference.title')}>
      <Field label={t('inference.system')} hint={t('inference.systemHint')}>
        {(ids) => (
          <textarea
            {...ids}
            rows={3}
            value={sampling.system}
            onChange={(event) => change({ system: event.target.value })}
          />
        )}
      </Field>
      <PresetButtons />
      <Field
        label={`${t('inference.temperature')}: ${formatDecimal(sampling.temperature, 1, i18n.language)}`}
        hint={t('inference.temperatureHint')}
      >
        {(ids) => (
          <input
            {...ids}
            type="range"
            min={0}
            max={2}
            step={0.1}
            value={sampling.temperature}
            onChange={(event) => change({ temperature: Number(event.target.value) })}
          />
        )}
      </Field>
      <div className={styles.pair}>
        <Field
          label={t('inference.maxTokens')}
          hint={t('inference.maxTokensHint')}
          {...(isCapped
            ? { warning: t('inference.maxTokensCap', { cap: formatCount(cap, i18n.language) }) }
            : {})}
        >
          {(ids) => (
            <input
              {...ids}
              type="number"
              {...MAX_TOKENS_RANGE}
              value={sampling.maxTokens}
              onChange={(event) => {
                const value = Math.round(number(event.target.value) ?? MAX_TOKENS_RANGE.min);
                const { min, max } = MAX_TOKENS_RANGE;
                change({ maxTokens: Math.min(max, Math.max(min, value)) });
              }}
            />
          )}
        </Field>
        <Field label={t('inference.topP')} hint={t('inference.topPHint')}>
          {(ids) => (
            <input
              {...ids}
              type="number"
              min={0.05}
              max={1}
              step={0.05}
              value={sampling.topP ?? ''}
              onChange={(event) => {
                const value = number(event.target.value);
                if (value === null || (value > 0 && value <= 1)) change({ topP: value });
              }}
            />
          )}
        </Field>
      </div>
      <Field label={t('inference.stop')} hint={t('inference.stopHint')}>
        {(ids) => (
          <textarea
            {...ids}
            rows={2}
            value={sampling.stop.join('\n')}
            onChange={(event) => change({ stop: event.target.value.split('\n').slice(0, 4) })}
          />
        )}
      </Field>
      {isColibri && <ThinkingSwitch />}
      <TintFields />
      <div>
        <Button onClick={() => change(DEFAULT_SAMPLING)}>{t('inference.reset')}</Button>
      </div>
    </FieldGroup>
  );
}

function ThinkingSwitch() {
  const { t } = useTranslation('settings');
  const id = useId();
  const { sampling, change } = useSampling();
  return (
    <label className={styles.switch} htmlFor={id}>
      <input
        id={id}
        type="checkbox"
        checked={sampling.isThinking}
        onChange={(event) => change({ isThinking: event.target.checked })}
      />
      {t('inference.thinking')}
    </label>
  );
}
