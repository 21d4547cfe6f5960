// Joins the small canvas to what the server tells, as long as it can be seen.
import { useEffect, useRef } from 'react';
import { readMap } from '@/lib/experts/expert-map';
import { onExperts } from '@/lib/telemetry/hooks';
import { useMedia } from '@/lib/use-media';
import { MiniPainter } from '../components/mini-painter';
import { readPalette } from './read-palette';

export function useMiniCortex(): React.RefObject<HTMLCanvasElement | null> {
  const canvasRef = useRef<HTMLCanvasElement>(null);
  const isStill = useMedia('(prefers-reduced-motion: reduce)');
  useEffect(() => {
    const canvas = canvasRef.current;
    if (canvas === null) return;
    const painter = new MiniPainter(canvas, readPalette(canvas), isStill);
    const endSight = watchSight(canvas, (isSeen) => painter.setShown(isSeen));
    // Not through React: a report of used experts renders nothing.
    const endReports = onExperts((experts) => {
      const map = readMap(experts);
      if (map !== null) painter.setMap(map);
    });
    return () => {
      endReports();
      endSight();
      painter.stop();
    };
  }, [isStill]);
  return canvasRef;
}

/** Tell whether an element can be seen: its page is in front, and it is not scrolled away. */
function watchSight(element: Element, tell: (isSeen: boolean) => void): () => void {
  let isInView = true;
  const update = (): void => tell(isInView && !document.hidden);
  const observer = new IntersectionObserver((entries) => {
    isInView = entries.at(-1)?.isIntersecting ?? isInView;
    update();
  });
  observer.observe(element);
  document.addEventListener('visibilitychange', update);
  update();
  return () => {
    observer.disconnect();
    document.removeEventListener('visibilitychange', update);
  };
}
