// Colours code. The grammars are a part of their own, fetched when the first code block is shown.
import type { Root } from 'hast';

export type Highlighter = (language: string, code: string) => Root | null;

let loaded: Promise<Highlighter> | undefined;

/** The highlighter; null for a language it does not know. */
export function loadHighlighter(): Promise<Highlighter> {
  loaded ??= import('lowlight').then(({ common, createLowlight }) => {
    const lowlight = createLowlight(common);
    return (language, code) =>
      lowlight.registered(language) ? lowlight.highlight(language, code) : null;
  });
  return loaded;
}
