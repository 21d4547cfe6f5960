import { useLayoutEffect, useState, type RefObject } from 'react';

export interface Room {
  width: number;
  height: number;
  /** Device pixels per pixel of the page. */
  ratio: number;
}

/** How large an element is inside, and how fine the screen; null before it was measured. */
export function useRoom(ref: RefObject<HTMLElement | null>): Room | null {
  const [room, setRoom] = useState<Room | null>(null);
  // Before the first paint, so that what is sized after it does not move.
  useLayoutEffect(() => {
    const element = ref.current;
    if (element === null) return;
    const measure = (): void => {
      const { clientWidth: width, clientHeight: height } = element;
      setRoom({ width, height, ratio: window.devicePixelRatio });
    };
    const observer = new ResizeObserver(measure);
    measure();
    observer.observe(element);
    return () => observer.disconnect();
  }, [ref]);
  return room;
}
