// A small line of values, the newest at the right. Its words are in `label`.
import { useId } from 'react';
import styles from './sparkline.module.css';

interface SparklineProps {
  values: readonly number[];
  label: string;
  height?: number;
}

const WIDTH = 100;

/** The points of a line that fills the box, from 0 to the greatest value. */
export function linePoints(values: readonly number[], width: number, height: number): string {
  const top = Math.max(...values, Number.MIN_VALUE);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  return values
    .map(
      (value, index) => `${(index * step).toFixed(2)},${(height * (1 - value / top)).toFixed(2)}`,
    )
    .join(' ');
}

export function Sparkline({ values, label, height = 40 }: SparklineProps) {
  const id = useId();
  const shown = values.length === 1 ? [values[0] ?? 0, values[0] ?? 0] : values;
  const points = linePoints(shown, WIDTH, height - 4);
  return (
    <svg
      className={styles.line}
      viewBox={`0 -2 ${WIDTH} ${height}`}
      preserveAspectRatio="none"
      height={height}
      role="img"
      aria-label={label}
    >
      <defs>
        <linearGradient id={id} x1="0" y1="0" x2="0" y2="1">
          <stop offset="0" stopColor="var(--accent)" stopOpacity="0.28" />
          <stop offset="1" stopColor="var(--accent)" stopOpacity="0" />
        </linearGradient>
      </defs>
      <polygon points={`0,${height} ${points} ${WIDTH},${height}`} fill={`url(#${id})`} />
      <polyline points={points} />
    </svg>
  );
}
