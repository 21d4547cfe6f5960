// How likely each token of an answer was, and what else could have stood there. Pure.

/** A token, or several that make one piece of text: the pieces joined are the answer. */
export interface TokenChance {
  text: string;
  /** Probability of the token that was taken, 0 to 1; null if the server told none. */
  chance: number | null;
  /** The likeliest tokens of that place, likeliest first. */
  others: readonly { text: string; chance: number }[];
}

export type Tint = 'sure' | 'unsure' | 'doubtful';

/** Above `sure` a token has no tint, below `doubtful` the stronger one. */
export interface TintBounds {
  sure: number;
  doubtful: number;
}

export function tintOf(chance: number | null, { sure, doubtful }: TintBounds): Tint {
  if (chance === null || chance >= sure) return 'sure';
  return chance >= doubtful ? 'unsure' : 'doubtful';
}

/**
 * Put a piece of text behind those before it. What came with it as tokens may say the text
 * differently (a token can hold half a letter, and a stop text is cut): then it is one piece, as
 * unlikely as the least likely of them.
 */
export function withChances(
  before: readonly TokenChance[],
  text: string,
  tokens: readonly TokenChance[],
): readonly TokenChance[] {
  if (text === '') return before;
  if (tokens.map((token) => token.text).join('') === text) return [...before, ...tokens];
  const [least] = tokens.toSorted((a, b) => (a.chance ?? 1) - (b.chance ?? 1));
  return [...before, { text, chance: least?.chance ?? null, others: least?.others ?? [] }];
}

/** The pieces of the beginning of an answer, `length` characters long. */
export function cutChances(pieces: readonly TokenChance[], length: number): readonly TokenChance[] {
  const kept: TokenChance[] = [];
  let left = length;
  for (const piece of pieces) {
    if (left <= 0) break;
    kept.push(piece.text.length <= left ? piece : { ...piece, text: piece.text.slice(0, left) });
    left -= piece.text.length;
  }
  return kept;
}

/** A token as it is named: blanks and line ends are seen. */
export function visibleToken(text: string): string {
  return text
    .replaceAll('\n', '↵')
    .replaceAll('\t', '⇥')
    .replace(/^ +| +$/g, (run) => '␣'.repeat(run.length));
}
