/** What the script of draws is given (lua/take.lua), and what it answers. */
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import { EngineError } from '../../core/errors.ts'
import type { Rate } from '../../core/rate.ts'
import { type Draw, type Drawn, notARate } from '../../core/store-take.ts'
import type { CallItem } from './codec.ts'
import { recordKey } from './names.ts'

/** A draw, as an item of a call. */
export interface DrawItem extends CallItem {
  readonly draw: Draw
}

export function drawItem(draw: Draw): DrawItem {
  return { key: draw.parts[0]?.key ?? '', id: '', draw }
}

/** In Cluster a script has keys of one slot only. */
export function inSeveralSlots(key: string, other: string): EngineError {
  const message = `'${key}' and '${other}' are in different slots of the Cluster, where nothing can be taken from both in one step: give their keys one hash tag, like '{tenant:7}:user:1' and '{tenant:7}'`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}

/** All words of a call. */
export function takeWords(names: RedisNames, items: readonly DrawItem[]): string[] {
  const serverKeys: string[] = []
  const numbers = new Map<Rate, number>()
  const rates: string[] = []
  let draws = ''
  for (const { draw } of items) {
    draws += `${draw.parts.length} ${draw.bookUs} `
    for (const { key, rate, cost } of draw.parts) {
      let number = numbers.get(rate)
      if (number === undefined) {
        const { tokenUnits, stepUnits, stepUs, capacity } = rate
        number = rates.push(`${tokenUnits} ${stepUnits} ${stepUs} ${capacity}`)
        numbers.set(rate, number)
      }
      serverKeys.push(names.serverKey(key))
      draws += `${cost} ${number} `
    }
  }
  const declared = names.cluster ? serverKeys.map(recordKey) : []
  const list = names.cluster ? '' : serverKeys.join('\0')
  return ['', String(declared.length), ...declared, list, rates.join(' '), draws]
}

export function readDraws(reply: unknown, items: readonly DrawItem[]): Drawn[] {
  if (!Array.isArray(reply) || reply.length !== items.length + 2)
    throw unexpected(`has ${Array.isArray(reply) ? reply.length : 'no'} words instead of ${items.length + 2}`)
  const nowUs = Number(reply[0]) * 1e6 + Number(reply[1])
  return items.map(({ key, draw }, index): Drawn => {
    const [code, ...words] = String(reply[index + 2]).split(' ')
    if (code === '!') return { state: 'failed', error: notARate(ENGINE, key) }
    const debts = words.map(Number)
    if ((code !== 't' && code !== 'r') || debts.length !== draw.parts.length)
      throw unexpected(`is ${JSON.stringify(reply[index + 2])} for a draw of ${draw.parts.length} keys`)
    return { state: 'drawn', taken: code === 't', debts, nowUs }
  })
}

function unexpected(what: string): EngineError {
  return new EngineError(ENGINE, `take: the answer of the server ${what}`, { outcome: 'unknown', transient: false })
}
