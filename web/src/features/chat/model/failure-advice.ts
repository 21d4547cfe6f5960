// Which kind of failure a reader is told about. Pure.
import type { RequestError } from '@/lib/api-client';

export type Advice =
  | 'network'
  | 'empty'
  | 'key'
  | 'host'
  | 'model'
  | 'context'
  | 'busy'
  | 'option'
  | 'server'
  | 'other';

export function failureAdvice(
  error: Pick<RequestError, 'kind' | 'status' | 'code' | 'param'>,
): Advice {
  if (error.kind === 'network' || error.kind === 'timeout') return 'network';
  if (error.kind === 'empty') return 'empty';
  if (error.code === 'context_length_exceeded') return 'context';
  if (error.status === 401) return 'key';
  if (error.status === 403) return 'host';
  if (error.status === 404) return 'model';
  if (error.status === 429) return 'busy';
  if (error.status >= 500) return 'server';
  return error.param === '' ? 'other' : 'option';
}
