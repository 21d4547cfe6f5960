// The parts of some time as one bar. A part too small for its label still has its name below.
import { useTranslation } from 'react-i18next';
import { formatPercent } from '@/lib/format';
import { PHASE_COLORS, PHASES, type Phase } from '@/lib/telemetry/phases';
import { usePhaseWords } from '../hooks/use-phase-words';
import styles from './phase-bar.module.css';

const LEAST_DRAWN = 0.001;
const LEAST_LABELLED = 0.09;

interface PhaseBarProps {
  title: string;
  phases: Record<Phase, number>;
}

export function PhaseBar({ title, phases }: PhaseBarProps) {
  const { i18n } = useTranslation();
  const words = usePhaseWords();
  const total = PHASES.reduce((sum, name) => sum + phases[name], 0);
  const drawn = PHASES.map((name) => ({ name, share: total > 0 ? phases[name] / total : 0 }));
  return (
    <figure className={styles.figure}>
      <figcaption>
        {title} <span className="numeric">{words.seconds(total)}</span>
      </figcaption>
      <div className={styles.bar} role="img" aria-label={words.parts(phases)}>
        {drawn
          .filter(({ share }) => share > LEAST_DRAWN)
          .map(({ name, share }) => (
            <span
              key={name}
              data-part={name}
              style={{ flexGrow: share, background: `var(${PHASE_COLORS[name]})` }}
            >
              {share >= LEAST_LABELLED && formatPercent(share, i18n.language)}
            </span>
          ))}
      </div>
    </figure>
  );
}

/** Which colour is which part. */
export function PhaseLegend() {
  const words = usePhaseWords();
  return (
    <ul className={styles.legend}>
      {PHASES.map((name) => (
        <li key={name}>
          <i style={{ background: `var(${PHASE_COLORS[name]})` }} />
          {words.phase(name)}
        </li>
      ))}
    </ul>
  );
}
