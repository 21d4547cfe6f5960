// What joins a canvas and its painter to the page and to what the server tells.
import { useEffect, useRef } from 'react';
import { readMap } from '@/lib/experts/expert-map';
import { onExperts } from '@/lib/telemetry/hooks';
import { useMedia } from '@/lib/use-media';
import { CortexPainter } from '../components/cortex-painter';
import type { Grid } from '../model/grid';
import { readPalette } from './read-palette';

/** The painter of a canvas, told of every change. */
export function useCortex(
  grid: Grid | null,
  marked: number | null,
): React.RefObject<HTMLCanvasElement | null> {
  const canvasRef = useRef<HTMLCanvasElement>(null);
  const painterRef = useRef<CortexPainter | null>(null);
  const isStill = useMedia('(prefers-reduced-motion: reduce)');
  useEffect(() => {
    if (canvasRef.current === null) return;
    const painter = new CortexPainter(canvasRef.current);
    painterRef.current = painter;
    // Not through React, which shows the last of several reports that come at once: each flashes.
    const end = onExperts((experts) => {
      const map = readMap(experts);
      if (map !== null) painter.setMap(map);
    });
    return () => {
      end();
      painter.stop();
    };
  }, []);
  useEffect(() => {
    const canvas = canvasRef.current;
    if (grid === null || canvas === null) return;
    painterRef.current?.setLook(grid, readPalette(canvas), isStill);
  }, [grid, isStill]);
  useEffect(() => painterRef.current?.mark(marked), [marked]);
  return canvasRef;
}
