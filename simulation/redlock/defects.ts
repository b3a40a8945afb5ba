/**
 * Deliberate defects of Redlock: the shortcuts that its implementations take, and that a token for it invites. What a
 * server does is done by lua/ in the engine and by server.ts here, which a test keeps equal; so its defects are planted
 * here.
 */
import type { Defect } from '../defect.ts'

const QUORUM = 'src/engines/redlock/quorum.ts'
const DECISION = 'src/engines/redlock/quorum-decision.ts'
const ROUND = 'src/engines/redlock/quorum-round.ts'
const OWN_ENTRIES = 'src/engines/redlock/own-entries.ts'
const OUTGOING = 'src/engines/redlock/outgoing-messages.ts'
const SERVER = 'simulation/redlock/server.ts'
/** Here what is given back has to be gone at once. */
const CALM = { wild: false, late: false, amnesia: false, breaks: 0, holes: 0, crashes: 0, delayMs: 0.5 } as const

const defects: readonly Omit<Defect, 'simulator'>[] = [
  {
    name: 'redlock: the maximum, not written back',
    file: DECISION,
    find: "return token === undefined ? { step: 'raise', to: highest } : { step: 'granted', token }",
    replace: "return { step: 'granted', token: token ?? highest }",
    why: 'the next majority may not contain the server that knows the highest number',
  },
  {
    name: 'redlock: raised without asking whose it is',
    file: SERVER,
    find: 'if (stored?.id !== id) return 0',
    replace: 'if (stored === undefined) return 0',
    why: 'two holders get one number',
  },
  {
    name: 'redlock: raised over a higher count',
    file: SERVER,
    find: '    if (count > to) return count\n    this.#counts.set(this.#countOf(key), to)\n',
    replace: '    this.#counts.set(this.#countOf(key), Math.max(count, to))\n',
    why: 'the number may have been another holder’s already',
    conditions: { wild: true },
  },
  {
    name: 'redlock: every number from the clock',
    file: SERVER,
    find: 'known === undefined ? this.#countedTo(key) : known + 1',
    replace: 'known === undefined || known > 0 ? Math.floor(this.#now() * 1000) : known + 1',
    why: 'clocks go back',
    conditions: { wild: true },
  },
  {
    name: 'redlock: keys of an earlier attempt count as they are',
    file: SERVER,
    find: '      stored.expiresAt = this.#now() + ttlMs\n      stored.ttlMs = ttlMs\n',
    replace:
      "      if (mode === 'renew' && !this.#line(key).has(id)) stored.expiresAt = this.#now() + ttlMs\n      stored.ttlMs = ttlMs\n",
    why: 'they may expire the next moment',
    conditions: { wild: false, amnesia: false, servers: 3, breaks: 6, holes: 4 },
  },
  {
    name: 'redlock: set after the release',
    file: OWN_ENTRIES,
    find: '    entry.left = true\n    this.release(entry)\n',
    replace: '',
    why: 'a renewal that is under way gives the key to an entry that has left',
    conditions: { wild: false, late: false, crashes: 1 },
  },
  {
    name: 'redlock: given back only where it was had',
    file: ROUND,
    find: '        this.#context.outgoing.leave(server, leave, ttlMs)\n        continue\n',
    replace: '        continue\n',
    why: 'a key stays on every server whose answer was lost, for a ttl',
    conditions: { ...CALM, slow: 0.15 },
  },
  {
    name: 'redlock: what takes back one attempt takes back the next',
    file: SERVER,
    find: 'stored?.id === id && (upToAttempt === undefined || stored.attempt <= upToAttempt)',
    replace: 'stored?.id === id',
    why: 'a late message gives back what is held',
    conditions: { wild: false, breaks: 6, late: true },
  },
  {
    name: 'redlock: a raised number is all that was counted',
    file: SERVER,
    find: 'const count = this.#countedTo(key)\n',
    replace: 'const count = this.#counts.get(this.#countOf(key)) ?? 0\n',
    why: 'a server that has forgotten its counts believes the number it is asked for',
    conditions: {
      ...CALM,
      ...{
        amnesia: true,
        servers: 3,
        clients: 4,
        keys: 2,
        shared: true,
        delayMs: 3,
        slow: 0,
        vanishing: 300,
        breaks: 6,
      },
    },
  },
  {
    name: 'redlock: asked for again after it has left',
    file: QUORUM,
    find: 'called.filter(({ entry }) => !entry.left)',
    replace: 'called',
    why: 'a try that is given up during its pause leaves keys behind',
    conditions: { ...CALM, clients: 4, keys: 1, delayMs: 3 },
  },
  {
    name: 'redlock: a take that was sent again has not been overtaken',
    file: ROUND,
    find: "typeof reply === 'number' && servers[server]?.ordered !== true",
    replace: 'false',
    why: 'the release came before it, and the key stays for a ttl',
    conditions: { ...CALM, resent: 0.03 },
  },
  {
    name: 'redlock: a repair that was sent again has not been overtaken',
    file: OUTGOING,
    find: 'if (reply !== undefined && server.ordered) return',
    replace: 'if (reply !== undefined) return',
    why: 'the release came before it, and the key stays for a ttl',
    conditions: { ...CALM, resent: 0.15, breaks: 6 },
  },
  {
    name: 'redlock: what could not be given back is forgotten',
    file: OUTGOING,
    find: '      if (were === undefined) this.#addPending(server, leaves)\n',
    replace: '',
    why: 'a key stays for a ttl on every server whose connection broke',
    conditions: { ...CALM, breaks: 6 },
  },
  {
    name: 'redlock: fewer than a majority',
    file: DECISION,
    find: 'return Math.floor(count / 2) + 1',
    replace: 'return Math.floor(count / 2)',
    why: 'two of them need not meet',
  },
]

export const DEFECTS: readonly Defect[] = defects.map((defect) => ({ ...defect, simulator: 'redlock/main' }))
