// The map of all experts: a canvas for the eye, a grid of one cell for keys and screen readers.
import { useId, useMemo, useRef, useState, type KeyboardEvent } from 'react';
import { useTranslation } from 'react-i18next';
import { useSearchParams } from 'react-router';
import { parseKey } from '@/lib/atlas/atlas';
import { useCortex } from '../hooks/use-cortex';
import { useExpertWords } from '../hooks/use-expert-words';
import { useRoom } from '../hooks/use-room';
import type { ExpertMap } from '@/lib/experts/expert-map';
import { expertAt, fitGrid, stepBy, type Grid } from '../model/grid';
import styles from './cortex.module.css';
import { ExpertTip } from './expert-tip';
import { LayerEntropy } from './layer-entropy';
import { LayerLabels } from './layer-labels';

export function Cortex({ map }: { map: ExpertMap }) {
  const { t } = useTranslation('brain');
  const words = useExpertWords(map);
  const roomRef = useRef<HTMLDivElement>(null);
  const room = useRoom(roomRef);
  const { rows, cols } = map;
  const grid = useMemo(
    () => (room === null ? null : fitGrid({ rows, cols }, room)),
    [rows, cols, room],
  );
  const [hovered, setHovered] = useState<number | null>(null);
  const asked = useAskedExpert(map);
  const [cursor, setCursor] = useState(asked ?? 0);
  const [isFocused, setIsFocused] = useState(false);
  const at = Math.min(cursor, map.cells.length - 1);
  const shown = hovered ?? (isFocused || at === asked ? at : null);
  const canvasRef = useCortex(grid, shown);
  const id = useId();
  const current = words.expert(at);

  const onKeyDown = (event: KeyboardEvent): void => {
    const next = grid === null ? null : stepBy(event.key, at, grid);
    if (next === null || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    setHovered(null);
    setCursor(next);
  };
  const under = (event: React.PointerEvent): number | null => {
    const box = event.currentTarget.getBoundingClientRect();
    if (grid === null) return null;
    return expertAt(grid, event.clientX - box.left, event.clientY - box.top);
  };

  return (
    <div ref={roomRef} className={styles.room}>
      <div className={styles.frame} data-turned={grid?.isTurned ?? false}>
        {grid !== null && <LayerLabels grid={grid} words={words} />}
        <div
          className={styles.grid}
          role="grid"
          tabIndex={0}
          aria-label={t('grid.label')}
          aria-describedby={`${id}-keys`}
          aria-rowcount={rows}
          aria-colcount={cols}
          aria-activedescendant={`${id}-${at}`}
          onKeyDown={onKeyDown}
          onFocus={() => setIsFocused(true)}
          onBlur={() => setIsFocused(false)}
          onPointerMove={(event) => setHovered(under(event))}
          onPointerLeave={() => setHovered(null)}
          onPointerDown={(event) => setCursor(under(event) ?? at)}
        >
          <canvas
            ref={canvasRef}
            className={styles.canvas}
            style={grid === null ? undefined : sizeOf(grid)}
            aria-hidden="true"
          />
          <div role="row" aria-rowindex={Math.floor(at / cols) + 1} className="visually-hidden">
            <div role="gridcell" id={`${id}-${at}`} aria-colindex={(at % cols) + 1} key={at}>
              {[current.name, current.tierName, current.heat].join(', ')}
              {current.isUsed && `, ${current.used}`}
              {`, ${current.role}`}
            </div>
          </div>
          {grid !== null && map.entropy !== undefined && (
            <LayerEntropy grid={grid} bits={map.entropy} />
          )}
          {grid !== null && shown !== null && (
            <ExpertTip grid={grid} index={shown} words={words.expert(shown)} />
          )}
        </div>
      </div>
      <p id={`${id}-keys`} className="visually-hidden">
        {t('grid.keys')}
      </p>
    </div>
  );
}

function sizeOf({ across, down, cellWidth, cellHeight, ratio }: Grid) {
  return { width: (across * cellWidth) / ratio, height: (down * cellHeight) / ratio };
}

/** The place of the expert that the address names as `?expert=53:179`, if it is on the map. */
function useAskedExpert({ layers, cols }: ExpertMap): number | null {
  const [params] = useSearchParams();
  const key = parseKey(params.get('expert') ?? '');
  const row = key === null ? undefined : layers?.indexOf(key.layer);
  if (key === null || row === undefined || row < 0 || key.expert >= cols) return null;
  return row * cols + key.expert;
}
