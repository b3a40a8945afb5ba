/** Engines whose stock is wrong. */
import type { Engine } from '../../../src/core/engine.ts'
import type { Store } from '../../../src/core/store.ts'
import type { PoolAnswer, PoolStep } from '../../../src/core/store-hold.ts'
import { type Defect, defect } from './defect.ts'

const TRACE = 'steps on pools are answered as the rule says'
const LAPSES = 'a hold that has lapsed is there for others, and cannot be confirmed; one that was extended lives'
const AT_ONCE = 'clients that reserve at once get no more than there is, and each id counts once'

type Holds = (steps: readonly PoolStep[]) => Promise<readonly PoolAnswer[]>

function holding(name: string, fails: readonly string[], broken: (rightly: Holds) => Holds): Defect {
  return defect(name, fails, (engine: Engine) => {
    const store = engine.store as Store & { hold: NonNullable<Store['hold']> }
    const wrong: Store = {
      traits: store.traits,
      get: (keys) => store.get(keys),
      put: (changes) => store.put(changes),
      hold: broken((steps) => store.hold(steps)),
      list: (prefix) => store.list(prefix),
    }
    return { store: wrong }
  })
}

/** The steps, with some of them changed. */
function changing(change: (step: PoolStep) => PoolStep): (rightly: Holds) => Holds {
  return (rightly) => (steps) => rightly(steps.map(change))
}

/** Whether there is enough is looked up before, and then believed. */
async function checkedBefore(rightly: Holds, step: PoolStep): Promise<PoolAnswer> {
  const [view, known] = await rightly([
    { ...step, verb: 'show' },
    { ...step, verb: 'find' },
  ])
  const items = view?.state === 'pool' ? view.items : []
  const enough = step.lines.every(({ item, quantity }) =>
    items.some((one) => one.item === item && one.stock - one.sold - one.held >= quantity),
  )
  if (!enough || known?.state !== 'lapsed') return (await rightly([step]))[0] as PoolAnswer
  // All that have come with it have looked by then, however busy the machine is.
  await new Promise((resolve) => void setImmediate(resolve))
  const change: PoolStep = { ...step, verb: 'add', id: `\t${Math.random()}`, ms: 1, flag: true }
  const less = step.lines.map(({ item, quantity }) => ({ item, quantity: -quantity }))
  const answers = await rightly([change, step, { ...change, id: `\t${Math.random()}`, lines: less }])
  return answers[1] as PoolAnswer
}

let uses = 0

export const poolDefects: readonly Defect[] = [
  holding('looks whether there is enough, and then reserves', [AT_ONCE], (rightly) => async (steps) => {
    const answers: PoolAnswer[] = []
    for (const step of steps)
      answers.push(
        step.verb === 'reserve' ? await checkedBefore(rightly, step) : ((await rightly([step]))[0] as PoolAnswer),
      )
    return answers
  }),
  holding(
    'never lets a hold lapse',
    [LAPSES],
    changing((step) => ({ ...step, ms: step.ms * 1000 })),
  ),
  holding(
    'does not know an id again',
    [TRACE, AT_ONCE],
    changing((step) => {
      uses += 1
      return step.verb === 'reserve' ? { ...step, id: `${step.id} ${uses}` } : step
    }),
  ),
  holding(
    'does not extend',
    [LAPSES],
    changing((step) => (step.verb === 'extend' ? { ...step, verb: 'find' } : step)),
  ),
  holding(
    'sells what has lapsed, if it is late',
    [TRACE],
    changing((step) => (step.verb === 'confirm' ? { ...step, flag: true } : step)),
  ),
]
