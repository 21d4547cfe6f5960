// A column per turn, the newest at the right: of one value, or of parts on top of each other. The
// turn under the pointer, or chosen by keys, stands out in all charts of the page.
import type { KeyboardEvent } from 'react';
import styles from './turn-columns.module.css';

export interface Part {
  name: string;
  value: number;
  color: string;
}

interface TurnColumnsProps {
  title: string;
  /** The parts of each turn, from the bottom. */
  columns: readonly (readonly Part[])[];
  /** What each column says. */
  words: readonly string[];
  /** What the highest column reaches, in words. */
  peak: string;
  lines?: readonly { name: string; value: number }[];
  selected: number | null;
  onSelect: (index: number | null) => void;
}

const total = (parts: readonly Part[]): number => parts.reduce((sum, { value }) => sum + value, 0);

export function TurnColumns(props: TurnColumnsProps) {
  const { title, columns, words, peak, lines = [], selected, onSelect } = props;
  const top = Math.max(...columns.map(total), ...lines.map(({ value }) => value), 1e-9);
  const last = columns.length - 1;
  const percent = (value: number): string => `${(100 * value) / top}%`;

  const onKeyDown = (event: KeyboardEvent): void => {
    const from = selected ?? last + 1;
    const steps: Record<string, number> = {
      ArrowLeft: Math.max(0, from - 1),
      ArrowRight: Math.min(last, from + 1),
      Home: 0,
      End: last,
    };
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    onSelect(next);
  };

  return (
    <section className={styles.chart}>
      <header>
        <h2>{title}</h2>
        <p className="numeric">{peak}</p>
      </header>
      <div
        className={styles.plot}
        role="slider"
        tabIndex={0}
        aria-label={title}
        aria-orientation="horizontal"
        aria-valuemin={1}
        aria-valuemax={columns.length}
        aria-valuenow={(selected ?? last) + 1}
        aria-valuetext={words[selected ?? last] ?? ''}
        data-has-selection={selected !== null}
        data-lines={lines.length > 0}
        onKeyDown={onKeyDown}
        onBlur={() => onSelect(null)}
        onPointerLeave={() => onSelect(null)}
      >
        {lines.map(({ name, value }) => (
          <span key={name} className={styles.line} style={{ bottom: percent(value) }}>
            <small>{name}</small>
          </span>
        ))}
        {columns.map((parts, index) => (
          <div
            key={index}
            className={styles.column}
            data-selected={index === selected}
            onPointerEnter={() => onSelect(index)}
          >
            {parts.map(({ name, value, color }) => (
              <i key={name} style={{ height: percent(value), background: `var(${color})` }} />
            ))}
          </div>
        ))}
      </div>
    </section>
  );
}
