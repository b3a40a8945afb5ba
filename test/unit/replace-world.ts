/** A list in memory, and uploads that the test can stop. */
import {
  type ReplaceOptions,
  type ReplaceResult,
  removeRetired,
  replace,
  type Turn,
} from '../../src/recipes/replace/index.ts'
import { type FakeProcess, gate } from './once-world.ts'

export const KEY = 'group:7'

/** Rows that carry a generation, and the place where readers look for the one that counts. */
export class Members {
  rows: { readonly generation: number; readonly name: string }[] = []
  #generation = 0

  get seen(): readonly string[] {
    return this.rows.filter(({ generation }) => generation === this.#generation).map(({ name }) => name)
  }

  insert(turn: Turn, names: readonly string[]): Promise<unknown> {
    const { generation } = turn
    return turn.batch(null, () => this.rows.push(...names.map((name) => ({ generation, name }))))
  }

  flip = (generation: number): void => {
    this.#generation = generation
  }

  /** All of a file. */
  upload =
    (file: readonly (readonly string[])[], between: () => unknown = () => {}) =>
    async (turn: Turn): Promise<string> => {
      for await (const names of turn.resume(file)) {
        await this.insert(turn, names)
        await between()
      }
      await turn.publish(null, this.flip)
      return 'uploaded'
    }

  /** Remove what is waste; answers how many rows are left. */
  async removeRetired({ locks }: Pick<FakeProcess, 'locks'>): Promise<number> {
    await removeRetired(locks, KEY, {
      remove: (_, generations) => {
        this.rows = this.rows.filter(({ generation }) => !generations.includes(generation))
      },
      limit: 2,
    })
    return this.rows.length
  }
}

/** An upload that stops after its first batch, until it is let on. Its turn is told. */
export function paused(
  { locks }: FakeProcess,
  members: Members,
  options: ReplaceOptions = {},
): { turn: Promise<Turn>; goOn(): void; result: Promise<ReplaceResult<string>> } {
  const begun = gate<Turn>()
  const going = gate()
  const result = replace(locks, KEY, options, async (turn) => {
    const pause = async (): Promise<void> => {
      begun.open(turn)
      await going.opened
    }
    return members.upload([['old 1'], ['old 2']], pause)(turn)
  })
  result.catch(() => {})
  return { turn: begun.opened, goOn: () => going.open(), result }
}
