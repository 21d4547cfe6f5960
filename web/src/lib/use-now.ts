import { useEffect, useState } from 'react';
import { every } from './ticks';

/** The time in milliseconds, renewed this often; for what counts seconds. */
export function useNow(intervalMs: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => every(intervalMs, () => setNow(Date.now())), [intervalMs]);
  return now;
}
