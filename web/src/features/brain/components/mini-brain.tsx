// The map of the experts in small, beside the chat: the model thinks in the corner of the eye.
import { ChevronDown } from 'lucide-react';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'react-router';
import { IconButton } from '@/components/button';
import { readStored, writeStored } from '@/lib/storage';
import { joinClasses } from '@/lib/join-classes';
import { useTelemetry } from '@/lib/telemetry/telemetry-store';
import { useMiniCortex } from '../hooks/use-mini-cortex';
import styles from './mini-brain.module.css';

const KEY = 'colibri.mini-brain';

export default function MiniBrain() {
  const { t } = useTranslation(['brain', 'frame']);
  const hasExperts = useTelemetry((state) => state.experts !== null);
  const [isOpen, setIsOpen] = useState(() => readStored(KEY) !== 'closed');
  if (!hasExperts) return null;
  const toggle = (): void => {
    writeStored(KEY, isOpen ? 'closed' : null);
    setIsOpen(!isOpen);
  };
  return (
    <section className={styles.mini} aria-label={t('mini.title')}>
      <header className={styles.head}>
        <h3>{t('frame:brain.title')}</h3>
        <IconButton
          size="small"
          label={t(isOpen ? 'mini.close' : 'mini.open')}
          aria-expanded={isOpen}
          icon={<ChevronDown size={15} className={styles.chevron} data-open={isOpen} />}
          onClick={toggle}
        />
      </header>
      {isOpen && <Picture />}
    </section>
  );
}

function Picture() {
  const { t } = useTranslation('brain');
  const canvasRef = useMiniCortex();
  return (
    <Link
      to="/brain"
      className={joinClasses(styles.link, 'always-dark')}
      aria-label={t('mini.link')}
      title={t('mini.link')}
    >
      <canvas ref={canvasRef} className={styles.canvas} aria-hidden="true" />
    </Link>
  );
}
