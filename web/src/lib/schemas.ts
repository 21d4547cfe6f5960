// What the server's diagnostic routes answer. Fields beyond `status` are optional everywhere: other
// servers and older engines leave them out, and a field of a wrong kind counts as left out.
import * as z from 'zod/mini';

const count = z.catch(z.number().check(z.nonnegative()), 0);
const maybeNumber = z.catch(z.optional(z.number()), undefined);
const maybeFlag = z.catch(z.optional(z.boolean()), undefined);
const maybeText = z.catch(z.optional(z.nullable(z.string())), undefined);

const scheduler = z.object({
  active: z.catch(z.pipe(z.union([z.boolean(), z.number()]), z.transform(Number)), 0),
  queued: count,
  capacity: maybeNumber,
  max_queue: maybeNumber,
  queue_timeout_seconds: maybeNumber,
  admitted: count,
  completed: count,
  failed: count,
  rejected: count,
  timed_out: count,
  cancelled: count,
  aborted: count,
});

const slot = z.object({
  slot: z.catch(z.nullable(z.number()), null),
  request: z.catch(z.string(), ''),
  state: z.catch(z.enum(['prefill', 'decode']), 'decode'),
  prompt_tokens: count,
  prefilled_tokens: count,
  generated: count,
  tokens_per_second: count,
  wait_s: count,
  age_s: count,
});

const tiers = z.object({ vram: count, ram: count, disk: count, vram_gb: count, ram_gb: count });

const hardware = z.object({
  cores: count,
  ram_total_gb: count,
  ram_avail_gb: count,
  gpus: count,
  vram_total_gb: count,
  cpu: z.catch(z.string(), ''),
  gpu: z.catch(z.string(), ''),
  backend: maybeText,
});

/** The server behind, where ours stands in front of another; null: it does not tell. */
const figure = z.catch(z.nullable(z.number()), null);
const upstream = z.object({
  server: z.string(),
  url: z.catch(z.string(), ''),
  running: figure,
  waiting: figure,
  kv_usage: figure,
  decode_rate: figure,
  hit_ratio: figure,
});

const engine = z.object({
  state: z.catch(z.string(), ''),
  restarts: count,
  last_end: maybeText,
  rss_gb: count,
});

export const healthSchema = z.object({
  status: z.string(),
  scheduler: z.catch(z.optional(scheduler), undefined),
  kv_slots: maybeNumber,
  slots: z.catch(z.optional(z.array(slot)), undefined),
  model: maybeText,
  family: maybeText,
  context_length: z.catch(z.optional(z.nullable(z.number())), undefined),
  version: maybeText,
  uptime_s: maybeNumber,
  engine: z.catch(z.optional(engine), undefined),
  upstream: z.catch(z.optional(upstream), undefined),
  tiers: z.catch(z.optional(tiers), undefined),
  hwinfo: z.catch(z.optional(hardware), undefined),
  /** Whether `/experts.json` has something. */
  atlas: maybeFlag,
  load: z.catch(
    z.optional(z.object({ phase: z.string(), done: z.number(), total: z.number() })),
    undefined,
  ),
});

export const turnSchema = z.object({
  wall_s: count,
  expert_disk_s: count,
  expert_wait_s: count,
  expert_matmul_s: count,
  attention_s: count,
  lm_head_s: count,
  prompt_tokens: count,
  completion_tokens: count,
  forwards: count,
});

export const profileSchema = z.object({ seq: count, turns: z.catch(z.array(turnSchema), []) });

const gpu = z.object({ used_gb: count, total_gb: count, experts: count });
const move = z.object({
  layer: z.number(),
  expert: z.number(),
  old_tier: z.number(),
  gpu: z.number(),
});

export const expertsSchema = z.object({
  rows: z.number(),
  cols: z.number(),
  map: z.string(),
  hits: z.string(),
  seq: z.number(),
  gpus: z.catch(z.optional(z.array(gpu)), undefined),
  entropy: z.catch(z.optional(z.array(z.number())), undefined),
  repin: z.catch(z.optional(z.array(move)), undefined),
  layers: z.catch(z.optional(z.array(z.number())), undefined),
  mtp_row: maybeNumber,
});

export const progressSchema = z.object({
  slots: z.catch(z.array(slot), []),
  queued: count,
});

export const modelsSchema = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      context_window: maybeNumber,
      max_output_tokens: maybeNumber,
      owned_by: maybeText,
    }),
  ),
});

export type Health = z.infer<typeof healthSchema>;
export type Turn = z.infer<typeof turnSchema>;
export type Profile = z.infer<typeof profileSchema>;
export type Experts = z.infer<typeof expertsSchema>;
export type Progress = z.infer<typeof progressSchema>;
export type SlotState = z.infer<typeof slot>;
export type Tiers = z.infer<typeof tiers>;
export type Hardware = z.infer<typeof hardware>;
export type ModelEntry = z.infer<typeof modelsSchema>['data'][number];
