// Cuts Markdown into parts that can be rendered on their own, so that while an answer grows only its
// last part is rendered anew. A cut is made only where none of the parts can change the other.

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
// Lines that may belong to the block before the blank line: indented, list items, quotes; also the
// beginning of one that is still being written.
const GOES_ON = /^(?:\s|[-+*](?:\s|$)|\d{1,9}(?:[.)](?:\s|$)|$)|>)/;
// Definitions act on the whole text.
const DEFINITION = /^ {0,3}\[[^\]]+\]:/m;

export function splitBlocks(text: string): string[] {
  if (DEFINITION.test(text)) return [text];
  const blocks: string[] = [];
  let fence: string | null = null;
  let block: string[] = [];
  let isAfterBlank = false;
  for (const line of text.split('\n')) {
    if (fence === null && isAfterBlank && line.trim() !== '' && !GOES_ON.test(line)) {
      blocks.push(block.join('\n'));
      block = [];
    }
    block.push(line);
    fence = fenceAfter(line, fence);
    isAfterBlank = fence === null && (line.trim() === '' || (isAfterBlank && block.length === 0));
  }
  blocks.push(block.join('\n'));
  return blocks;
}

/** The fence that is open after a line: its marker, or null. */
function fenceAfter(line: string, open: string | null): string | null {
  const marker = FENCE.exec(line)?.[1];
  if (marker === undefined) return open;
  if (open === null) return marker;
  const isClosing =
    marker.startsWith(open[0] ?? '') && marker.length >= open.length && line.trim() === marker;
  return isClosing ? null : open;
}
