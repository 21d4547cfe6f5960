// What the next answer is asked for: to reason first, and to tell how likely each token was.
import { Brain, Percent } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { joinClasses } from '@/lib/join-classes';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { useSampling } from '../model/sampling';
import { useChanceSupport } from '../stores/chance-support';
import styles from './composer.module.css';

/** Reasoning on or off, for servers that know it. */
export function ThinkingToggle() {
  const { t } = useTranslation('chat');
  const isColibri = useTelemetry((state) => state.health?.scheduler !== undefined);
  const isThinking = useSampling((state) => state.sampling.isThinking);
  const change = useSampling((state) => state.change);
  if (!isColibri) return null;
  return (
    <button
      type="button"
      className={joinClasses(styles.toggle, isThinking && styles.on)}
      aria-pressed={isThinking}
      title={t('composer.thinkingHint')}
      onClick={() => change({ isThinking: !isThinking })}
    >
      <Brain size={15} />
      {t('composer.thinking')}
    </button>
  );
}

/** Tokens tinted by their probability, or not. */
export function ChanceToggle() {
  const { t } = useTranslation('chat');
  const isTinted = useSampling((state) => state.sampling.isTinted);
  const change = useSampling((state) => state.change);
  return (
    <button
      type="button"
      className={joinClasses(styles.toggle, isTinted && styles.on)}
      aria-pressed={isTinted}
      title={t('chances.hint')}
      onClick={() => change({ isTinted: !isTinted })}
    >
      <Percent size={15} />
      {t('chances.toggle')}
    </button>
  );
}

/** That the server does not tell what was asked for. */
export function ChanceNote() {
  const { t } = useTranslation('chat');
  const isTinted = useSampling((state) => state.sampling.isTinted);
  const support = useChanceSupport();
  const isMissing = isTinted && (support === 'refused' || support === 'absent');
  return (
    <p className={styles.note} role="status">
      {isMissing && t(`chances.${support}`)}
    </p>
  );
}
