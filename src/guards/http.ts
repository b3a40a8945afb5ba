/**
 * `holdfast/guards/http`: tokens across HTTP. Read http/admission.ts first: it says what a middleware can promise, and
 * what it cannot.
 */

export {
  type Admission,
  type AdmissionOptions,
  admission,
  answer,
  type FastifyReply,
  type HonoContext,
  type NodeRequest,
  type NodeResponse,
  type RequestLine,
  responseOf,
} from './http/admission.ts'
export { guardedFetch, guardHeaders } from './http/client.ts'
export type { Problem } from './http/header.ts'
export type { LeaseLike } from './lease-like.ts'
