/** What the script of draws is given (lua/take.lua), and what it answers. */
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import { EngineError } from '../../core/errors.ts'
import { unexpectedAnswer } from '../../core/failed-call.ts'
import type { Rate } from '../../core/rate.ts'
import { type Draw, type Drawn, type DrawPart, notARate } from '../../core/store-take.ts'
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
  const message =
    `'${key}' and '${other}' are in different slots of the Cluster, where nothing can be taken from both in one step: ` +
    `give their keys one hash tag, like '{tenant:7}:user:1' and '{tenant:7}'`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}

/** All words of a call. */
export function takeWords(names: RedisNames, draws: readonly Draw[]): string[] {
  const [draw] = draws
  if (draws.length === 1 && draw?.parts.length === 1) return wordsOfOne(names, draw.parts[0] as DrawPart, draw.bookUs)
  const serverKeys: string[] = []
  const numbers = new Map<Rate, number>()
  const rates: string[] = []
  let text = ''
  for (const { parts, bookUs } of draws) {
    text += `${parts.length} ${bookUs} `
    for (const { key, rate, cost } of parts) {
      let number = numbers.get(rate)
      if (number === undefined) {
        number = rates.push(ratesText(rate))
        numbers.set(rate, number)
      }
      serverKeys.push(names.serverKey(key))
      text += `${cost} ${number} `
    }
  }
  const declared = names.cluster ? serverKeys.map(recordKey) : []
  const list = names.cluster ? '' : serverKeys.join('\0')
  return ['', String(declared.length), ...declared, list, rates.join(' '), text]
}

/** With what the script needs for its short way, if it counts in microseconds. */
function wordsOfOne(names: RedisNames, { key, rate, cost }: DrawPart, bookUs: number): string[] {
  const serverKey = names.serverKey(key)
  const words = names.cluster ? ['', '1', recordKey(serverKey), ''] : ['', '0', serverKey]
  words.push(ratesText(rate), `1 ${bookUs} ${cost} 1 `)
  if (rate.stepUs === 1 && cost > 0)
    words.push(
      String(rate.stepUnits),
      String(cost * rate.tokenUnits),
      String(rate.capacity + Math.floor(bookUs) * rate.stepUnits),
    )
  return words
}

function ratesText({ tokenUnits, stepUnits, stepUs, capacity }: Rate): string {
  return `${tokenUnits} ${stepUnits} ${stepUs} ${capacity}`
}

export function drawnsOf(reply: unknown, draws: readonly Draw[]): Drawn[] {
  const text = String(reply)
  if (draws.length === 1 && draws[0]?.parts.length === 1) {
    // Quicker than a split: "1700000000123456 t 300".
    const at = text.indexOf(' t ')
    if (at > 0)
      return [{ state: 'drawn', taken: true, debts: [Number(text.slice(at + 3))], nowUs: Number(text.slice(0, at)) }]
  }
  const words = text.split(' ')
  const nowUs = Number(words[0])
  const answers: Drawn[] = []
  let at = 1
  for (const { parts } of draws) {
    const code = words[at++]
    if (code === '!') {
      answers.push({ state: 'failed', error: notARate(ENGINE, parts[0]?.key ?? '') })
    } else {
      if (code !== 't' && code !== 'r') throw unexpectedAnswer(ENGINE, 'take', `the answer is ${JSON.stringify(reply)}`)
      const debts: number[] = []
      for (let part = 0; part < parts.length; part += 1) debts.push(Number(words[at++]))
      answers.push({ state: 'drawn', taken: code === 't', debts, nowUs })
    }
  }
  if (at !== words.length) throw unexpectedAnswer(ENGINE, 'take', `the answer is ${JSON.stringify(reply)}`)
  return answers
}
