/**
 * The guard on Redis, on a wire: for `guard()`, which is given a client, and for the command line, which opens a
 * connection of its own. What it promises is in ../redis.ts.
 */
import { asEngineError, ENGINE } from '../../clients/redis/errors.ts'
import { globEscape, nameOfSuffix, RESERVED, suffixOf } from '../../clients/redis/names.ts'
import { ScriptCaller } from '../../clients/redis/script-caller.ts'
import { type RedisWire, scanPages } from '../../clients/redis/wire.ts'
import { systemClock } from '../../core/clock.ts'
import { StaleTokenError } from '../../core/errors.ts'
import { checkKey } from '../../core/keys.ts'
import { type LeaseLike, newerFormat, resourceToken } from '../lease-like.ts'
import type { Access, Mark } from '../marks.ts'
import { guarded } from './scripts.ts'

/**
 * A command: its name, its key, and its arguments. Further keys (of `RENAME`, say) count as arguments: a prefix that
 * your client puts before keys does not reach them.
 */
export type Command = readonly [name: string, key: string, ...args: readonly (string | number)[]]

/** `resource` is the key of the lease unless given. Answers have the replies in the order of the commands. */
export interface RedisGuard extends AsyncDisposable {
  /**
   * Read. Rejects with `StaleTokenError` if a higher token has written, and then nothing is done. Without commands:
   * only say that you have read.
   */
  read(lease: LeaseLike, commands?: readonly Command[], resource?: string): Promise<readonly unknown[]>
  /**
   * Write, or read and write. Rejects with `StaleTokenError` if a higher token has read or written, and then nothing is
   * done.
   */
  write(lease: LeaseLike, commands: readonly Command[], resource?: string): Promise<readonly unknown[]>
  /** The marks of all resources whose name begins so, by name. */
  list(prefix?: string): Promise<readonly Mark[]>
  /**
   * Forget a resource, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then.
   */
  reset(resource: string, seen: bigint): Promise<boolean>
}

/** Arguments of one script that Lua can unpack at once; Redis sets no lower bound. */
const MOST_WORDS = 7000
const PREFIX = `${RESERVED}marks`

/** A guard on this wire, which it closes. `forgetMs`: how long to keep marks, for ever unless given. */
export function guardOn(wire: RedisWire, forgetMs?: number): RedisGuard {
  const caller = new ScriptCaller(wire, systemClock)

  async function call(
    verb: Access | 'reset',
    resource: string,
    token: bigint,
    commands: readonly Command[],
  ): Promise<readonly unknown[]> {
    const keys = [PREFIX + suffixOf(resource), ...commands.map(([, key]) => key)]
    const words = ['', String(keys.length), ...keys, verb, String(token), String(forgetMs ?? '')]
    for (const [name, , ...args] of commands) words.push(String(args.length + 1), name, ...args.map(String))
    const [answer, ...replies] = await caller.call(
      `guard ${verb}`,
      guarded,
      words,
      keys[0] as string,
      (reply) => reply as readonly unknown[],
    )
    if (String(answer) === 'stale') throw new StaleTokenError(resource, token, BigInt(String(replies[0])))
    if (String(answer) === 'newer') throw newerFormat(ENGINE, resource)
    return replies
  }

  async function checkMarks(
    access: Access,
    lease: LeaseLike,
    commands: readonly Command[],
    name?: string,
  ): Promise<readonly unknown[]> {
    const { resource, token } = resourceToken(lease, access, name)
    commands.forEach(checkCommand)
    return await call(access, resource, token, commands)
  }

  async function marksAt(name: string): Promise<Mark | undefined> {
    const key = name.slice(wire.keyPrefix.length)
    const [seen, written] = (await wire.send('HMGET', [key, 'seen', 'written'], key)) as readonly (string | null)[]
    const resource = resourceAt(key)
    if (resource === undefined || typeof seen !== 'string' || typeof written !== 'string') return undefined
    return { resource, seen: BigInt(seen), written: BigInt(written) }
  }

  return {
    read: (lease, commands = [], resource) => checkMarks('read', lease, commands, resource),
    write: (lease, commands, resource) => checkMarks('write', lease, commands, resource),
    list: async (prefix = '') => {
      const found = new Map<string, Mark>()
      try {
        if (!wire.ready) await caller.connected()
        for (const server of await wire.servers()) {
          for await (const names of scanPages(server, `${globEscape(wire.keyPrefix + PREFIX)}*`, 'hash')) {
            const marks = await Promise.all(names.map(marksAt))
            for (const mark of marks) if (mark?.resource.startsWith(prefix)) found.set(mark.resource, mark)
          }
        }
      } catch (error) {
        throw asEngineError('guard list', error)
      }
      return [...found.values()].sort((a, b) => (a.resource < b.resource ? -1 : 1))
    },
    reset: async (resource, seen) => {
      checkKey(resource)
      return Number((await call('reset', resource, seen, []))[0]) === 1
    },
    [Symbol.asyncDispose]: () => wire.close(),
  }
}

function resourceAt(key: string): string | undefined {
  return key.startsWith(PREFIX) ? nameOfSuffix(key.slice(PREFIX.length)) : undefined
}

function checkCommand(command: Command): void {
  const [name, key, ...args] = command
  const fits =
    typeof name === 'string' &&
    typeof key === 'string' &&
    args.every((arg) => typeof arg === 'string' || typeof arg === 'number')
  if (!fits)
    throw new TypeError(
      `a command is [name, key, ...arguments], of strings and numbers; got ${JSON.stringify(command)}`,
    )
  if (args.length > MOST_WORDS)
    throw new RangeError(`a command takes at most ${MOST_WORDS} arguments here; got ${args.length}`)
}
