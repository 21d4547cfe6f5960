// Settings of how varied answers are, by name.
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { isPreset, PRESETS, useSampling } from '../model/sampling';
import styles from './inference-group.module.css';

const NAMES = Object.keys(PRESETS) as (keyof typeof PRESETS)[];

export function PresetButtons() {
  const { t } = useTranslation('settings');
  const { sampling, change } = useSampling();
  return (
    <div role="group" aria-label={t('inference.presets.label')} className={styles.presets}>
      {NAMES.map((name) => {
        const isChosen = isPreset(sampling, PRESETS[name]);
        return (
          <Button
            key={name}
            aria-pressed={isChosen}
            variant={isChosen ? 'primary' : 'plain'}
            onClick={() => change(PRESETS[name])}
          >
            {t(`inference.presets.${name}`)}
          </Button>
        );
      })}
    </div>
  );
}
