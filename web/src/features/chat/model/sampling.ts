// How answers are to be drawn: kept for the next visit, shared by all conversations.
import { create } from 'zustand';
import * as z from 'zod/mini';
import { readStoredJson, writeStored } from '@/lib/storage';

export const MAX_TOKENS_RANGE = { min: 1, max: 32_768 } as const;

const share = z.number().check(z.minimum(0), z.maximum(1));

const schema = z.object({
  temperature: z.catch(z.number().check(z.minimum(0), z.maximum(2)), 0.7),
  topP: z.catch(z.nullable(z.number().check(z.gt(0), z.maximum(1))), null),
  maxTokens: z.catch(
    z.int().check(z.minimum(MAX_TOKENS_RANGE.min), z.maximum(MAX_TOKENS_RANGE.max)),
    4096,
  ),
  isThinking: z.catch(z.boolean(), false),
  /** The system prompt that new conversations begin with. */
  system: z.catch(z.string(), ''),
  /** Whether the probabilities of tokens are asked for and shown. */
  isTinted: z.catch(z.boolean(), false),
  /** Bounds of the tint: no tint from the one on, the stronger one below the other. */
  tintSure: z.catch(share, 0.8),
  tintDoubtful: z.catch(share, 0.4),
  stop: z.catch(z.array(z.string()).check(z.maxLength(4)), []),
});

export type Sampling = z.infer<typeof schema>;
const KEY = 'colibri.sampling';

export const DEFAULT_SAMPLING: Sampling = schema.parse({});

type Preset = Pick<Sampling, 'temperature' | 'topP'>;

/** How varied answers are, for those who do not care for numbers. */
export const PRESETS = {
  precise: { temperature: 0.2, topP: 0.9 },
  balanced: { temperature: DEFAULT_SAMPLING.temperature, topP: DEFAULT_SAMPLING.topP },
  creative: { temperature: 1.1, topP: 0.95 },
} as const satisfies Record<string, Preset>;

export function isPreset(sampling: Sampling, preset: Preset): boolean {
  return sampling.temperature === preset.temperature && sampling.topP === preset.topP;
}

interface SamplingState {
  sampling: Sampling;
  change: (part: Partial<Sampling>) => void;
}

function storedSampling(): Sampling {
  const stored = schema.safeParse(readStoredJson(KEY));
  return stored.success ? stored.data : DEFAULT_SAMPLING;
}

export const useSampling = create<SamplingState>()((set, get) => ({
  sampling: storedSampling(),
  change: (part) => {
    const sampling = { ...get().sampling, ...part };
    writeStored(KEY, JSON.stringify(sampling));
    set({ sampling });
  },
}));
