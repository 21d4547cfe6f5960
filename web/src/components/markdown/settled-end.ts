// How much of code that is still being written is coloured. Pure.

const FIRST = 32; // characters
/** What may follow uncoloured, as a share: colouring all over again at each word is what costs. */
const GROWTH = 1.1;

/** Where the coloured part of growing code ends: after a line, further on only now and then. */
export function settledEnd(code: string): number {
  let reached = 0;
  for (let size = FIRST; size <= code.length; size *= GROWTH) reached = size;
  return code.lastIndexOf('\n', reached) + 1;
}
