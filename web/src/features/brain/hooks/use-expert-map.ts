import { useMemo, useState } from 'react';
import { useExperts } from '@/lib/telemetry/hooks';
import { readMap, type ExpertMap } from '@/lib/experts/expert-map';

interface LatestMap {
  /** The latest that could be read; null before there is one. */
  map: ExpertMap | null;
  /** What the server sent last could not be read; `map` is an older one. */
  isUnreadable: boolean;
}

export function useExpertMap(): LatestMap {
  const experts = useExperts();
  const read = useMemo(() => (experts === null ? null : readMap(experts)), [experts]);
  const [last, setLast] = useState<ExpertMap | null>(null);
  if (read !== null && read !== last) setLast(read);
  return { map: read ?? last, isUnreadable: experts !== null && read === null };
}
