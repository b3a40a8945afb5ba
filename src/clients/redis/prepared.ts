/**
 * EVALSHA for a client of ours, by the shortest way: its words are put into the form of the protocol here, and ioredis
 * writes them as they are. What it would do for any command (look for keys, for other types than strings, for what was
 * meant by the arguments) takes a tenth of the time that a single caller's process has for a lock. And one call that
 * goes to several servers in the same words is put into form once.
 */
import type { Command, Redis } from 'ioredis'
import { loadIoredis } from './connect.ts'

/** Calls a script, on that client, with these words, which are not changed any more once they are here. */
export type Evalsha = (client: Redis, words: readonly string[]) => Promise<unknown>

export async function loadEvalsha(): Promise<Evalsha> {
  const prepare = await loadPrepare()
  return (client, words) => client.sendCommand(prepare(words)) as Promise<unknown>
}

/** Makes the command, one for each server. */
export async function loadPrepare(): Promise<(words: readonly string[]) => Command> {
  const ioredis = await loadIoredis()
  class Prepared extends ioredis.Command {
    readonly #text: string

    constructor(text: string) {
      super('evalsha', NONE, OPTIONS)
      this.#text = text
    }

    override toWritable(): string {
      return this.#text
    }
  }
  let last: readonly string[] = NONE
  let text = ''
  return (words) => {
    if (words !== last) text = textOf(words)
    last = words
    return new Prepared(text)
  }
}

const NONE: string[] = []
const OPTIONS = { replyEncoding: 'utf8' } as const

/** As the protocol has it: https://redis.io/docs/latest/develop/reference/protocol-spec/#arrays */
export function textOf(words: readonly string[]): string {
  let text = `*${words.length + 1}\r\n$7\r\nevalsha\r\n`
  for (const word of words) text += `$${Buffer.byteLength(word)}\r\n${word}\r\n`
  return text
}
