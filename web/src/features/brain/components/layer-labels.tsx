// The numbers of the layers along the edge of the map, as many as can be read.
import { memo } from 'react';
import type { Words } from '../hooks/use-expert-words';
import { labelledRows, type Grid } from '../model/grid';
import styles from './cortex.module.css';

const LEAST_PX = { straight: 16, turned: 28 };

interface LayerLabelsProps {
  grid: Grid;
  words: Words;
}

export const LayerLabels = memo(function LayerLabels({ grid, words }: LayerLabelsProps) {
  const { isTurned, ratio } = grid;
  const size = (isTurned ? grid.cellWidth : grid.cellHeight) / ratio;
  const rows = labelledRows(grid, isTurned ? LEAST_PX.turned : LEAST_PX.straight);
  return (
    <div className={styles.labels} aria-hidden="true">
      {rows.map((row) => (
        <span key={row} style={{ [isTurned ? 'left' : 'top']: `${(row + 0.5) * size}px` }}>
          {words.shortLayer(row)}
        </span>
      ))}
    </div>
  );
});
