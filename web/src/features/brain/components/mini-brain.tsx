// The map of the experts in small, beside the chat: the model thinks in the corner of the eye.
import { ChevronDown } from 'lucide-react';
import { useMemo, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'react-router';
import { IconButton } from '@/components/button';
import { readStored, writeStored } from '@/lib/storage';
import { joinClasses } from '@/lib/join-classes';
import { useCortex } from '../hooks/use-cortex';
import { useExpertMap } from '../hooks/use-expert-map';
import { useRoom } from '../hooks/use-room';
import { fitGrid } from '../model/grid';
import styles from './mini-brain.module.css';

const KEY = 'colibri.mini-brain';
// Beside an answer that grows, which the machine's time belongs to.
const LEAST_FRAME_MS = 80;

export default function MiniBrain() {
  const { t } = useTranslation('brain');
  const shape = useShape();
  const [isOpen, setIsOpen] = useState(() => readStored(KEY) !== 'closed');
  if (shape === null) return null;
  const toggle = (): void => {
    writeStored(KEY, isOpen ? 'closed' : null);
    setIsOpen(!isOpen);
  };
  return (
    <section className={styles.mini} aria-label={t('mini.title')}>
      <header className={styles.head}>
        <h3>{t('title')}</h3>
        <IconButton
          size="small"
          label={t(isOpen ? 'mini.close' : 'mini.open')}
          aria-expanded={isOpen}
          icon={<ChevronDown size={15} className={styles.chevron} data-open={isOpen} />}
          onClick={toggle}
        />
      </header>
      {isOpen && <Picture rows={shape.rows} cols={shape.cols} />}
    </section>
  );
}

/** Of the map, so that a report of used experts renders nothing here: the painter hears of it. */
function useShape(): { rows: number; cols: number } | null {
  const { map } = useExpertMap();
  const [rows, cols] = [map?.rows ?? 0, map?.cols ?? 0];
  return useMemo(() => (rows === 0 ? null : { rows, cols }), [rows, cols]);
}

function Picture({ rows, cols }: { rows: number; cols: number }) {
  const { t } = useTranslation('brain');
  const roomRef = useRef<HTMLDivElement>(null);
  const room = useRoom(roomRef);
  const grid = useMemo(
    () => (room === null ? null : fitGrid({ rows, cols }, room)),
    [rows, cols, room],
  );
  const canvasRef = useCortex(grid, null, LEAST_FRAME_MS);
  return (
    <Link
      to="/brain"
      className={joinClasses(styles.link, 'always-dark')}
      aria-label={t('mini.link')}
      title={t('mini.link')}
    >
      <div ref={roomRef} className={styles.room}>
        <canvas ref={canvasRef} className={styles.canvas} aria-hidden="true" />
      </div>
    </Link>
  );
}
