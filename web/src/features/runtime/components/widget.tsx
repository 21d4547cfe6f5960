// One block of the panel: a title, a short figure beside it, and the rest below.
import type { ReactNode } from 'react';
import styles from './widget.module.css';

interface WidgetProps {
  title: string;
  aside?: ReactNode;
  children: ReactNode;
}

export function Widget({ title, aside, children }: WidgetProps) {
  return (
    <section className={styles.widget}>
      <header className={styles.head}>
        <h3>{title}</h3>
        {aside !== undefined && <span className={styles.aside}>{aside}</span>}
      </header>
      {children}
    </section>
  );
}

interface Segment {
  name: string;
  value: number;
  color: string;
}

/** Parts of a whole as one bar; its words are in `label`. */
export function ShareBar({ segments, label }: { segments: readonly Segment[]; label: string }) {
  const total = segments.reduce((sum, { value }) => sum + value, 0);
  return (
    <div className={styles.bar} role="img" aria-label={label}>
      {segments
        .filter(({ value }) => total > 0 && value / total > 0.001)
        .map(({ name, value, color }) => (
          <span
            key={name}
            data-part={name}
            style={{ flexGrow: value, background: `var(${color})` }}
          />
        ))}
    </div>
  );
}

interface LegendRow {
  name: string;
  color?: string;
  label: string;
  value: ReactNode;
  note?: ReactNode;
}

export function Legend({ rows }: { rows: readonly LegendRow[] }) {
  return (
    <dl className={styles.legend}>
      {rows.map(({ name, color, label, value, note }) => (
        <div key={name} data-row={name}>
          <dt>
            {color !== undefined && <i style={{ background: `var(${color})` }} />}
            {label}
          </dt>
          <dd>
            {value}
            {note !== undefined && <small>{note}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
