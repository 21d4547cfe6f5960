// A formula. KaTeX is a part of its own, fetched when the first formula is shown.
import { useEffect, useRef, useState } from 'react';
import { joinClasses } from '@/lib/join-classes';
import type Katex from './katex';
import styles from './markdown.module.css';

interface FormulaProps {
  tex: string;
  isDisplay: boolean;
}

// A formula is set at once, in time that grows with its length, and may ask for any size.
const LONGEST = 4000;
const LARGEST_EM = 30;

let loading: Promise<typeof Katex> | undefined;

export function Formula({ tex, isDisplay }: FormulaProps) {
  const place = useRef<HTMLSpanElement>(null);
  const [katex, setKatex] = useState<typeof Katex | null>(null);
  useEffect(() => {
    let isGone = false;
    loading ??= import('./katex').then((loaded) => loaded.default);
    void loading.then((loaded) => {
      if (!isGone) setKatex(loaded);
    });
    return () => {
      isGone = true;
    };
  }, []);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    element.textContent = tex; // until there is better, and for what is no formula (yet)
    try {
      if (tex.length <= LONGEST) {
        katex?.render(tex, element, { displayMode: isDisplay, maxSize: LARGEST_EM });
      }
    } catch {
      element.textContent = tex;
    }
  }, [katex, tex, isDisplay]);
  return <span ref={place} className={joinClasses(styles.formula, isDisplay && styles.display)} />;
}
