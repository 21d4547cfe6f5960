// What is known of one expert, beside its cell. Those who hear the page get it from the grid.
import type { CSSProperties } from 'react';
import type { ExpertWords } from '../hooks/use-expert-words';
import { placeOf, type Grid } from '../model/grid';
import styles from './expert-tip.module.css';

interface ExpertTipProps {
  grid: Grid;
  index: number;
  words: ExpertWords;
}

export function ExpertTip({ grid, index, words }: ExpertTipProps) {
  const { x, y } = placeOf(grid, index);
  const { cellWidth, cellHeight, across, down, ratio } = grid;
  const isLeft = x > across / 2;
  const isAbove = y > down / 2;
  const place: CSSProperties = {
    [isLeft ? 'right' : 'left']: `${(cellWidth * (isLeft ? across - x : x + 1)) / ratio + 8}px`,
    [isAbove ? 'bottom' : 'top']: `${(cellHeight * (isAbove ? down - y : y + 1)) / ratio + 8}px`,
  };
  return (
    <div className={styles.tip} style={place} aria-hidden="true">
      <strong>{words.name}</strong>
      <span>
        <i style={{ background: `var(--tier-${words.tier})` }} />
        {words.tierName}
      </span>
      <span>{words.heat}</span>
      {words.isUsed && <em>{words.used}</em>}
      <span>{words.role}</span>
    </div>
  );
}
