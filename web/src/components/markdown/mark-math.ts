// Finds formulas in Markdown the way people mean them, and leaves prices alone. Pure.

// Code is no place for formulas: fences, closed or still open, and code within a line.
const CODE =
  /(^ {0,3}(?:`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:^ {0,3}(?:`{3,}|~{3,})[^\S\n]*$|$(?![\s\S]))|(`+)(?!`)[\s\S]*?[^`]\2(?!`))/gm;
// Two dollars on each side; one, with no blank inside the marks and no digit after them.
const FORMULA =
  /\\\[([\s\S]+?)\\\]|\\\(([\s\S]+?)\\\)|(\$\$[\s\S]+?\$\$)|(?<![\\$])\$(?![\s$])((?:\\.|[^$\n\\])*?[^\s$\\]|[^\s$\\])\$(?![\d$])/g;

/** Whether a text may hold a formula at all. */
export function hasMath(text: string): boolean {
  return text.includes('$') || text.includes('\\(') || text.includes('\\[');
}

/** The same text with every formula between dollars, and every other dollar escaped. */
export function markMath(text: string): string {
  let marked = '';
  let place = 0;
  for (const found of text.matchAll(CODE)) {
    marked += markProse(text.slice(place, found.index)) + found[0];
    place = found.index + found[0].length;
  }
  return marked + markProse(text.slice(place));
}

function markProse(text: string): string {
  let marked = '';
  let place = 0;
  for (const found of text.matchAll(FORMULA)) {
    const [whole, display, inline, dollars, single] = found;
    marked += escapeDollars(text.slice(place, found.index));
    if (display !== undefined) marked += `$$${display}$$`;
    else if (dollars !== undefined) marked += dollars;
    else marked += `$${inline?.trim() ?? single ?? ''}$`;
    place = found.index + whole.length;
  }
  return marked + escapeDollars(text.slice(place));
}

function escapeDollars(text: string): string {
  return text.replace(/(?<!\\)\$/g, '\\$');
}
