// How evenly each layer spreads its choices: a bar per layer at the far edge of the map, the brighter
// the more experts it uses alike. The table has the numbers.
import { memo } from 'react';
import type { Grid } from '../model/grid';
import styles from './cortex.module.css';

interface LayerEntropyProps {
  grid: Grid;
  /** Per layer; at most the binary logarithm of its number of experts. */
  bits: readonly number[];
}

export const LayerEntropy = memo(function LayerEntropy({ grid, bits }: LayerEntropyProps) {
  const { isTurned, ratio, cols } = grid;
  const size = (isTurned ? grid.cellWidth : grid.cellHeight) / ratio;
  const most = Math.log2(Math.max(2, cols));
  return (
    <div className={styles.entropy} data-turned={isTurned} aria-hidden="true">
      {bits.map((value, row) => {
        const share = Math.min(1, Math.max(0, value / most));
        const start = `${row * size}px`;
        return (
          <i
            key={row}
            style={{
              opacity: 0.15 + 0.85 * share,
              ...(isTurned
                ? { left: start, width: `${Math.max(1, size - 1)}px` }
                : { top: start, height: `${Math.max(1, size - 1)}px` }),
            }}
          />
        );
      })}
    </div>
  );
});
