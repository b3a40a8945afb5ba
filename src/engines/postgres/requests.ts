/**
 * Batches as the functions want them: one array for each property, in PostgreSQL's own spelling. We write it ourselves,
 * since clients differ in how they write arrays, and users may have changed it.
 */
import type { Claim, Place } from '../../core/engine.ts'

/** A key with a blank, a quote, a backslash or the word NULL is only itself between quotes. */
export function texts(values: readonly string[]): string {
  let array = '{'
  for (const value of values) {
    if (array.length > 1) array += ','
    array += `"${/["\\]/.test(value) ? value.replaceAll(/["\\]/g, '\\$&') : value}"`
  }
  return `${array}}`
}

function numbers(values: readonly number[]): string {
  return `{${values.join(',')}}`
}

function booleans(values: readonly boolean[]): string {
  return `{${values.map((value) => (value ? 't' : 'f')).join(',')}}`
}

/** For `enter`, of several claims. */
export function enterArguments(claims: readonly Claim[], client: string, patienceMs: number): string[] {
  return [
    texts(claims.map(({ key }) => key)),
    texts(claims.map(({ id }) => id)),
    texts(claims.map(holderOf)),
    numbers(claims.map(({ weight }) => weight)),
    numbers(claims.map(({ limit }) => limit)),
    numbers(claims.map(({ ttlMs }) => ttlMs)),
    booleans(claims.map(({ wait }) => wait)),
    numbers(occurrences(claims)),
    client,
    String(patienceMs),
  ]
}

/** For `take`, of one claim. */
export function takeArguments(claim: Claim, client: string, patienceMs: number): string[] {
  const { key, id, weight, limit, ttlMs, wait } = claim
  return [
    key,
    id,
    holderOf(claim),
    String(weight),
    String(limit),
    String(ttlMs),
    wait ? 't' : 'f',
    client,
    String(patienceMs),
  ]
}

export function renewArguments(places: readonly Place[], client: string, patienceMs: number): string[] {
  const [keys, ids] = namesOf(places)
  return [
    keys,
    ids,
    numbers(places.map(({ ttlMs }) => ttlMs)),
    booleans(places.map(({ outlives }) => outlives === true)),
    client,
    String(patienceMs),
  ]
}

export function leaveArguments(
  places: readonly Pick<Place, 'key' | 'id'>[],
  client: string,
  patienceMs: number,
): string[] {
  return [...namesOf(places), client, String(patienceMs)]
}

function namesOf(places: readonly Pick<Place, 'key' | 'id'>[]): [string, string] {
  return [texts(places.map(({ key }) => key)), texts(places.map(({ id }) => id))]
}

/** The server takes no NUL in a text, and a holder's name decides nothing. */
function holderOf({ holder }: Claim): string {
  return holder.includes('\0') ? holder.replaceAll('\0', '') : holder
}

/** How often each claim's key came before it: one statement can touch a row only once. */
function occurrences(claims: readonly Claim[]): number[] {
  const seen = new Map<string, number>()
  return claims.map(({ key }) => {
    const before = seen.get(key) ?? 0
    seen.set(key, before + 1)
    return before
  })
}
