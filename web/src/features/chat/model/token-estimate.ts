/**
 * A rough count of tokens, for meters only: four Latin characters a token, one and a half of the
 * scripts that are written without spaces.
 */
export function estimateTokens(text: string): number {
  const dense = (text.match(/[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]/g) ?? []).length;
  return Math.ceil((text.length - dense) / 4 + dense / 1.5);
}
