// What is known of one token: how likely it was, and what was likely instead.
import type { CSSProperties } from 'react';
import { createPortal } from 'react-dom';
import { useTranslation } from 'react-i18next';
import { formatPercent } from '@/lib/format';
import { visibleToken, type TokenChance } from '../model/token-chances';
import styles from './token-tip.module.css';

const WIDTH = 220; // as in the style sheet
const GAP = 6;

/** The same as a sentence, for those who hear the page. */
export function useTokenWords(): (piece: TokenChance) => string {
  const { t, i18n } = useTranslation('chat');
  return ({ text, chance, others }) => {
    const percent = (value: number): string => formatPercent(value, i18n.language);
    const list = others
      .filter((other) => other.text !== text)
      .map((other) => `${visibleToken(other.text)} ${percent(other.chance)}`)
      .join(', ');
    const token = visibleToken(text);
    if (chance === null) return t('chances.unknown', { token });
    const own = t('chances.token', { token, chance: percent(chance) });
    return list === '' ? own : `${own}; ${t('chances.instead', { list })}`;
  };
}

export function TokenTip({ piece, box }: { piece: TokenChance; box: DOMRect }) {
  const { t, i18n } = useTranslation('chat');
  const isAbove = box.top > window.innerHeight / 2;
  const place: CSSProperties = {
    left: Math.max(GAP, Math.min(box.left, window.innerWidth - WIDTH - GAP)),
    ...(isAbove ? { bottom: window.innerHeight - box.top + GAP } : { top: box.bottom + GAP }),
  };
  const isListed = piece.others.some((other) => other.text === piece.text);
  const rows = isListed
    ? piece.others
    : [{ text: piece.text, chance: piece.chance ?? 0 }, ...piece.others];
  return createPortal(
    <div className={styles.tip} style={place} aria-hidden="true">
      {piece.chance === null
        ? t('chances.unknown', { token: visibleToken(piece.text) })
        : rows.map((row, index) => (
            <div key={index} className={styles.row} data-taken={row.text === piece.text}>
              <i style={{ width: `${row.chance * 100}%` }} />
              <code>{visibleToken(row.text) || '∅'}</code>
              <span>{formatPercent(row.chance, i18n.language)}</span>
            </div>
          ))}
    </div>,
    document.body,
  );
}
