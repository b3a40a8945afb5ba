/**
 * `holdfast/guards/http`: tokens across HTTP. Read http/admission.ts first: it says what a middleware can promise, and
 * what it cannot.
 */
export type { Bearer } from './bearer.ts'
export {
  type Admission,
  type AdmissionOptions,
  type Arrival,
  admission,
  answer,
  type FastifyReply,
  type HonoContext,
  type NodeRequest,
  type NodeResponse,
  responseOf,
} from './http/admission.ts'
export { fencedFetch, fencingHeaders, type Sender } from './http/client.ts'
export type { Problem } from './http/header.ts'
