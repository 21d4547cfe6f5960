// An answer token by token, tinted by how likely each was; pointing at one, or the arrow keys, tell
// what else could have stood there.
import { memo, useLayoutEffect, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { useSampling } from '../model/sampling';
import { tintOf, type TintBounds, type TokenChance } from '../model/token-chances';
import { TokenTip, useTokenWords } from './token-tip';
import styles from './token-text.module.css';

const RUN = 64; // tokens that are rendered together, and never again once there are more

export default function TokenText({ pieces }: { pieces: readonly TokenChance[] }) {
  const { t } = useTranslation('chat');
  const sure = useSampling((state) => state.sampling.tintSure);
  const doubtful = useSampling((state) => state.sampling.tintDoubtful);
  const text = useRef<HTMLDivElement>(null);
  const [hovered, setHovered] = useState<number | null>(null);
  const [cursor, setCursor] = useState(0);
  const [isFocused, setIsFocused] = useState(false);
  const shown = hovered ?? (isFocused ? cursor : null);
  const box = useTokenBox(text, shown);
  const words = useTokenWords();
  const at = pieces[cursor];

  function onKeyDown(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const next = stepBy(event.key, cursor, pieces, { sure, doubtful });
    if (next === null) return;
    event.preventDefault();
    setHovered(null);
    setCursor(next);
    text.current?.querySelector(`[data-token="${next}"]`)?.scrollIntoView({ block: 'nearest' });
  }

  const runs: ReactNode[] = [];
  for (let start = 0; start < pieces.length; start += RUN) {
    runs.push(
      <Run
        key={start}
        pieces={pieces}
        start={start}
        end={Math.min(pieces.length, start + RUN)}
        sure={sure}
        doubtful={doubtful}
      />,
    );
  }
  return (
    <>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- as a map is */}
      <div
        ref={text}
        className={styles.text}
        role="group"
        // Gone through by keyboard.
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
        tabIndex={0}
        aria-label={t('chances.label')}
        onKeyDown={onKeyDown}
        onFocus={() => setIsFocused(true)}
        onBlur={() => setIsFocused(false)}
        onPointerMove={(event) => setHovered(tokenUnder(event.target))}
        onPointerLeave={() => setHovered(null)}
        onPointerDown={(event) => setCursor(tokenUnder(event.target) ?? cursor)}
      >
        {runs}
      </div>
      <p className="visually-hidden" aria-live="polite">
        {isFocused && at !== undefined && words(at)}
      </p>
      {shown !== null && box !== null && pieces[shown] !== undefined && (
        <TokenTip piece={pieces[shown]} box={box} />
      )}
    </>
  );
}

interface RunProps extends TintBounds {
  pieces: readonly TokenChance[];
  start: number;
  end: number;
}

const Run = memo(
  function Run({ pieces, start, end, ...bounds }: RunProps) {
    return pieces.slice(start, end).map(({ text, chance }, index) => (
      <span key={index} data-token={start + index} data-tint={tintOf(chance, bounds)}>
        {text}
      </span>
    ));
  },
  (before, now) =>
    before.end === now.end &&
    before.sure === now.sure &&
    before.doubtful === now.doubtful &&
    before.pieces[before.start] === now.pieces[now.start] &&
    before.pieces[before.end - 1] === now.pieces[now.end - 1],
);

/** Where the arrow keys lead: from token to token, up and down to those with a tint. */
function stepBy(
  key: string,
  at: number,
  pieces: readonly TokenChance[],
  bounds: TintBounds,
): number | null {
  const isTinted = (piece: TokenChance): boolean => tintOf(piece.chance, bounds) !== 'sure';
  const last = pieces.length - 1;
  if (key === 'ArrowRight') return Math.min(last, at + 1);
  if (key === 'ArrowLeft') return Math.max(0, at - 1);
  if (key === 'Home') return 0;
  if (key === 'End') return last;
  if (key === 'ArrowDown') {
    const next = pieces.findIndex((piece, index) => index > at && isTinted(piece));
    return next < 0 ? at : next;
  }
  if (key === 'ArrowUp') {
    const before = pieces.slice(0, at).findLastIndex(isTinted);
    return before < 0 ? at : before;
  }
  return null;
}

function tokenUnder(target: EventTarget): number | null {
  const token = target instanceof Element ? target.closest<HTMLElement>('[data-token]') : null;
  return token === null ? null : Number(token.dataset.token);
}

/** Where a token is on the screen, also while the page is scrolled. */
function useTokenBox(text: React.RefObject<HTMLElement | null>, token: number | null) {
  const [box, setBox] = useState<DOMRect | null>(null);
  useLayoutEffect(() => {
    if (token === null) return undefined;
    const find = (): void => {
      const node = text.current?.querySelector(`[data-token="${token}"]`);
      setBox(node?.getBoundingClientRect() ?? null);
    };
    find();
    window.addEventListener('scroll', find, { capture: true, passive: true });
    return () => window.removeEventListener('scroll', find, { capture: true });
  }, [text, token]);
  return box;
}
