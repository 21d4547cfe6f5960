// Keeps a growing list at its end, unless the reader went up to read.
import { useLayoutEffect, useRef, useState, type RefObject } from 'react';

const NEAR_PX = 80;

interface StickToEnd {
  isAtEnd: boolean;
  onScroll: () => void;
  jumpToEnd: () => void;
}

/**
 * `height` is whatever changes when the content grows. `asked` names what the reader said last: who
 * says something new wants to see it.
 */
export function useStickToEnd(
  list: RefObject<HTMLElement | null>,
  height: number,
  asked: string,
): StickToEnd {
  const [isAtEnd, setIsAtEnd] = useState(true);
  const isStuck = useRef(true);
  const last = useRef({ scrollHeight: 0, scrollTop: 0, clientHeight: 0 });

  useLayoutEffect(() => {
    if (isStuck.current) scrollToEnd(list.current);
  }, [height, list]);

  const [seen, setSeen] = useState(asked);
  if (seen !== asked) {
    setSeen(asked);
    setIsAtEnd(true);
  }
  useLayoutEffect(() => {
    isStuck.current = true;
    scrollToEnd(list.current);
  }, [asked, list]);

  // What comes below the list, as a refusal or a longer message, takes its room from it.
  useLayoutEffect(() => {
    const element = list.current;
    if (element === null || typeof ResizeObserver === 'undefined') return undefined;
    const observer = new ResizeObserver(() => {
      if (isStuck.current) scrollToEnd(element);
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [list]);

  function jumpToEnd(): void {
    isStuck.current = true;
    setIsAtEnd(true);
    scrollToEnd(list.current);
  }

  function onScroll(): void {
    const element = list.current;
    if (element === null) return;
    const { scrollHeight, scrollTop, clientHeight } = element;
    const gap = scrollHeight - scrollTop - clientHeight;
    // Only going up by hand lets go: content that grows makes a gap too, and what shrinks goes up.
    const before = last.current;
    const hasShrunk = scrollHeight < before.scrollHeight || clientHeight < before.clientHeight;
    const wentUp = scrollTop < before.scrollTop - 1 && !hasShrunk;
    last.current = { scrollHeight, scrollTop, clientHeight };
    if (gap < NEAR_PX) isStuck.current = true;
    else if (wentUp) isStuck.current = false;
    setIsAtEnd(isStuck.current);
  }

  return { isAtEnd, onScroll, jumpToEnd };
}

function scrollToEnd(element: HTMLElement | null): void {
  element?.scrollTo({ top: element.scrollHeight, behavior: 'instant' });
}
