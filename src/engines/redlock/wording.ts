/**
 * Batches as the scripts want them: a place for the name of the script, no keys, and the arguments. What goes to all
 * servers at once is put into words once: several servers whose keys have the same names share a wording.
 */
import { type RedisNames, slotOf } from '../../clients/redis/names.ts'
import type { Departure, Question } from './node.ts'

/** The numbers of classes are characters, from '!' (1) to '~' (94). */
const CLASS_ONE = 33
const MOST_CLASSES = 94
const MODES = { try: 't', wait: 'w', renew: 'r' } as const

/** How many keys are remembered with their group. */
const REMEMBERED = 10_000
const groups = new Map<string, string>()

/** Which counter K has. It must be the same for everybody, for ever: it is the slot that Cluster would put K into. */
export function groupOf(K: string): string {
  const known = groups.get(K)
  if (known !== undefined) return known
  if (groups.size >= REMEMBERED) groups.clear()
  const group = String(slotOf(K))
  groups.set(K, group)
  return group
}

export class Wording {
  readonly #names: RedisNames
  readonly #client: string
  #asked: { readonly questions: readonly Question[]; readonly words: string[] | undefined } | undefined
  #left: { readonly departures: readonly Departure[]; readonly words: string[] } | undefined

  /** `client` is the name of our channel. */
  constructor(names: RedisNames, client: string) {
    this.#names = names
    this.#client = client
  }

  /** For lua/ask.lua. Undefined: they are too different for one call. */
  ask(questions: readonly Question[]): string[] | undefined {
    if (this.#asked?.questions !== questions) this.#asked = { questions, words: this.#ask(questions) }
    return this.#asked.words
  }

  /** For lua/leave.lua. */
  leave(departures: readonly Departure[]): string[] {
    if (this.#left?.departures === departures) return this.#left.words
    let Ks = ''
    let ids = ''
    for (const { key, id } of departures) {
      Ks += `${this.#names.serverKey(key)}\0`
      ids += `${id} `
    }
    this.#left = { departures, words: ['', '0', Ks, ids, String(departures.length)] }
    return this.#left.words
  }

  #ask(questions: readonly Question[]): string[] | undefined {
    let Ks = ''
    let items = ''
    let classOf = ''
    const classes: Question[] = []
    for (const question of questions) {
      const K = this.#names.serverKey(question.key)
      Ks += `${K}\0`
      items += `${question.id} ${question.attempt} ${groupOf(K)} `
      let found = classes.findIndex((known) => alike(known, question))
      if (found < 0) found = classes.push(question) - 1
      if (found >= MOST_CLASSES) return undefined
      classOf += String.fromCharCode(CLASS_ONE + found)
    }
    const words = ['', '0', Ks, items, String(questions.length), this.#client, classes.length === 1 ? '' : classOf]
    for (const { ttlMs, mode, outlives, holder } of classes)
      words.push(String(ttlMs), outlives === true ? 'o' : MODES[mode], holder)
    return words
  }
}

function alike(a: Question, b: Question): boolean {
  return a.ttlMs === b.ttlMs && a.mode === b.mode && a.holder === b.holder && a.outlives === b.outlives
}
