/**
 * Many callers on one lock while their ways to the servers, and the servers, are in trouble: what is counted, and what
 * may never be seen. Used on the stand-in and on real members.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Dice, dice } from '../../conformance/chance.ts'
import type { Lease, Locks } from '../../src/index.ts'
import type { FaultProxy } from '../servers/proxy.ts'

export interface Fight {
  /** Each with locks of its own. */
  readonly clients: readonly Locks[]
  readonly callersOfEach: number
  readonly grants: number
  readonly seed: number
  /** One piece of trouble, and its end. Asked for again and again, by two at a time. */
  trouble(chance: Dice): Promise<void>
}

/** What went wrong: two holders who both believe it, or a token that is not above all before it. */
export async function fightFor(key: string, fight: Fight): Promise<readonly string[]> {
  const { clients, callersOfEach, grants, seed } = fight
  let [granted, highest]: [number, bigint] = [0, 0n]
  let holder: Lease | undefined
  const wrong: string[] = []
  const goesOn = (): boolean => granted < grants && wrong.length === 0

  const caller = async (locks: Locks): Promise<void> => {
    while (goesOn()) {
      try {
        const lease = await locks.mutex(key).acquire()
        const token = lease.token ?? 0n
        // It may have lost it again, if this process was slow.
        if (!lease.held) continue
        granted += 1
        if (holder?.held === true) wrong.push(`${token} was let in beside ${holder.token}`)
        if (token <= highest) wrong.push(`${token} after ${highest}`)
        holder = lease
        highest = token
        if (granted % 7 === 0) await sleep(1)
        if (holder === lease) holder = undefined
        await lease.release()
      } catch (error) {
        // An outage that is longer than the ttl is told to the caller.
        if ((error as { code?: string }).code !== 'ENGINE') throw error
      }
    }
  }

  const chance = dice(seed)
  const makeTrouble = async (): Promise<void> => {
    while (goesOn()) {
      await fight.trouble(chance)
      await sleep(chance.below(150))
    }
  }

  const troubles = [makeTrouble(), makeTrouble()]
  const callers = clients.flatMap((locks) => Array.from({ length: callersOfEach }, () => caller(locks)))
  await Promise.all([...callers, ...troubles])
  return wrong
}

/** On the way of one client. */
export async function troubleOnTheWay(proxy: FaultProxy, chance: Dice): Promise<void> {
  switch (chance.below(5)) {
    case 0:
      proxy.reset()
      return
    case 1:
      proxy.blackHole('replies')
      await sleep(chance.below(300))
      proxy.reset()
      break
    case 2:
      proxy.blackHole(...(chance.oneIn(2) ? (['requests'] as const) : []))
      await sleep(chance.oneIn(8) ? 5_000 : chance.below(800))
      break
    case 3:
      await proxy.refuse()
      await sleep(chance.below(300))
      break
    default:
      proxy.delay(chance.below(30))
      await sleep(chance.below(200))
  }
  await proxy.heal()
}
