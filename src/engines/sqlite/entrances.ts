/**
 * Lines that are entered together with a change of the record beside them, and left together with one: inside of one
 * transaction, of which SQLite has one at a time. What is refused writes nothing.
 */
import type { Change, Entered, Entrance, Leaving, Put } from '../../core/store.ts'
import type { SqliteTransaction } from './transaction.ts'

/** No entry has this id: a change that it has to hold for is refused. */
const NO_ENTRY = ''

/** Enter each line that is free and make the change beside it, or neither. */
export function putEntering(transaction: SqliteTransaction, entrances: readonly Entrance[]): Entered[] {
  const [first, ...others] = entrances
  if (first === undefined) return []
  // Two of one line: what becomes of the second one depends on the first.
  if (others.length > 0 && hasTwice(entrances.map(({ change }) => change)))
    return entrances.flatMap((one) => putEntering(transaction, [one]))
  const { records } = transaction
  const wanted = entrances.filter(
    ({ claim, change }) => records.refusal(change) === undefined || transaction.has(claim.key, claim.id),
  )
  const standings = wanted.length === 0 ? [] : transaction.enter(wanted.map(({ claim }) => claim))
  const puts = records.put(
    wanted.map(({ claim, change }, index) => held(change, standings[index]?.state === 'held' ? claim.id : NO_ENTRY)),
  )
  const entered = new Map<Entrance, Entered>()
  for (const [index, entrance] of wanted.entries()) {
    const [standing, put] = [standings[index] as Entered['standing'], asBefore(entrance.change, puts[index] as Put)]
    if (standing.state !== 'held' || put.state === 'stored') {
      entered.set(entrance, { standing, put })
    } else {
      // It was in the line, and what it had stored then is not there any more.
      transaction.leave([entrance.claim])
      entered.set(entrance, { standing: { state: 'busy', ahead: 0 }, put })
    }
  }
  return entrances.map((entrance) => entered.get(entrance) ?? refused(transaction, entrance))
}

/** Make each change, and leave the line beside it if it was made. */
export function putLeaving(transaction: SqliteTransaction, leavings: readonly Leaving[]): Put[] {
  const changes = leavings.map(({ change }) => change)
  if (hasTwice(changes)) return leavings.flatMap((one) => putLeaving(transaction, [one]))
  const puts = transaction.records.put(changes)
  const gone = leavings.filter((_, index) => puts[index]?.state === 'stored')
  transaction.leave(gone.map(({ change, id }) => ({ key: change.key, id })))
  return puts
}

function hasTwice(changes: readonly Change[]): boolean {
  return new Set(changes.map(({ key }) => key)).size < changes.length
}

function held(change: Change, id: string): Change {
  return { ...change, when: { ...change.when, holding: id } }
}

/** The answer to an entrance that has arrived before: if what it stored then is still there, it is stored. */
function asBefore({ value }: Change, put: Put): Put {
  if (put.state !== 'refused' || put.by === 'holding') return put
  const { stored, serverTimeMs } = put
  const isSame = value !== null && stored.value !== null && Buffer.compare(value, stored.value) === 0
  return isSame ? { state: 'stored', version: stored.version, mark: stored.mark, serverTimeMs } : put
}

/** The answer to one whose change cannot be made: that the line is not free comes before all other reasons. */
function refused(transaction: SqliteTransaction, { claim, change }: Entrance): Entered {
  const asked = transaction.isFree(claim) ? change : held(change, NO_ENTRY)
  return { standing: { state: 'busy', ahead: null }, put: transaction.records.put([asked])[0] as Put }
}
