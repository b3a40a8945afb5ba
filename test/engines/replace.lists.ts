/** The types of replace.lists.mjs, which plain processes load, too. */

export interface List {
  setup(): Promise<void>
  begin<Value>(work: (tx: unknown) => Promise<Value>, before?: () => unknown): Promise<Value>
  insert(tx: unknown, generation: number, batch: number, emails: readonly string[]): Promise<void>
  flip(tx: unknown, generation: number): Promise<void>
  remove(tx: unknown, generations: readonly number[]): Promise<void>
  seen(): Promise<readonly { readonly generation: number; readonly batch: number; readonly email: string }[]>
  generations(): Promise<readonly number[]>
  close(): Promise<void>
}

export type Lists = Record<'sqlite' | 'pg' | 'postgresjs' | 'mysql', (url: string) => Promise<List>>
