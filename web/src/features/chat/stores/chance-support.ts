// Whether a server tells how likely tokens were: learned from its answers, until the page is left.
import { create } from 'zustand';
import { useConnection } from '@/lib/connection/connection-store';

/** `refused`: requests that ask for it are turned down; `absent`: the answer has none. */
export type ChanceSupport = 'told' | 'refused' | 'absent';

/** By server and model. */
const useSupport = create<Readonly<Record<string, ChanceSupport>>>()(() => ({}));

function keyOfNow(): string {
  const { base, model } = useConnection.getState();
  return `${base} ${model}`;
}

/** What is known of the server and model of the moment; undefined: nothing was asked yet. */
export function useChanceSupport(): ChanceSupport | undefined {
  const base = useConnection((state) => state.base);
  const model = useConnection((state) => state.model);
  return useSupport((state) => state[`${base} ${model}`]);
}

export function refusesChances(): boolean {
  return useSupport.getState()[keyOfNow()] === 'refused';
}

export function noteChances(support: ChanceSupport): void {
  useSupport.setState({ [keyOfNow()]: support });
}
