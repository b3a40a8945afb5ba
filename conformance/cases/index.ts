/**
 * All cases, by property: first those that mostly wait, the longest in front, then those that are played alone. The
 * ones that leave dead entries behind come before those that look for what is left.
 */
import type { Group } from '../case.ts'
import { batches } from './batches.ts'
import { cancelling } from './cancelling.ts'
import { closing } from './closing.ts'
import { counts, crash } from './crash.ts'
import { differential } from './differential.ts'
import { drawsGroup } from './draws.ts'
import { election } from './election.ts'
import { eviction } from './eviction.ts'
import { expiry } from './expiry.ts'
import { keys } from './keys.ts'
import { leftovers } from './leftovers.ts'
import { limits } from './limits.ts'
import { looking } from './looking.ts'
import { loss } from './loss.ts'
import { mutexGroups } from './mutex.ts'
import { order } from './order.ts'
import { poolsGroup } from './pools.ts'
import { restarts } from './restart.ts'
import { sharing } from './sharing.ts'
import { stalls } from './stall.ts'
import { storeGroup } from './store.ts'
import { storeEnteringGroup } from './store-entering.ts'
import { storeHoldingGroup } from './store-holding.ts'
import { together } from './together.ts'
import { tokens } from './tokens.ts'
import { trying } from './trying.ts'
import { unknown } from './unknown.ts'
import { waiting } from './waiting.ts'

export const groups: readonly Group[] = [
  differential,
  storeGroup,
  storeHoldingGroup,
  drawsGroup,
  poolsGroup,
  storeEnteringGroup,
  ...mutexGroups,
  tokens,
  expiry,
  trying,
  waiting,
  cancelling,
  sharing,
  keys,
  batches,
  looking,
  eviction,
  unknown,
  crash,
  loss,
  together,
  election,
  closing,
  limits,
  order,
  counts,
  stalls,
  restarts,
  leftovers,
]
