import { useEffect, useState, type RefObject } from 'react';

export interface Room {
  width: number;
  height: number;
  /** Device pixels per pixel of the page. */
  ratio: number;
}

/** How large an element is inside, and how fine the screen; null before it was measured. */
export function useRoom(ref: RefObject<HTMLElement | null>): Room | null {
  const [room, setRoom] = useState<Room | null>(null);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return;
    const observer = new ResizeObserver(([entry]) => {
      if (entry === undefined) return;
      const { width, height } = entry.contentRect;
      setRoom({ width, height, ratio: window.devicePixelRatio });
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [ref]);
  return room;
}
