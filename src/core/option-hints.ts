/** What to say to a user who gives an option to a call that does not have it. */

const OF_ASKING = 'an option of acquire() and using()'
const OF_LOCKS = 'an option of createLocks() and connect()'
const OF_ONCE = 'an option of once()'
const OF_CACHE = 'an option of cache()'
const OF_JOB = 'an option of add(), of the jobs of cron()'
const OF_REPLACE = 'an option of replace()'
const OF_ENGINE = 'an option of the engine: createLocks(redis({ client, ... })), or a part of its URL'

/** Options of Holdfast, by name: where they belong. */
export const OWN_OPTIONS: Readonly<Record<string, string>> = {
  wait: OF_ASKING,
  signal: 'an option of acquire(), tryAcquire(), using(), lead(), watch() and sample()',
  within: 'an option of acquire(), tryAcquire() and using() of mutexes, read and write locks',
  weight: 'an option of acquire(), tryAcquire() and using() of semaphores',
  maxHold: 'an option of the lock, as in locks.mutex(key, { maxHold }), and of acquire(), using() and lead()',
  ttl: 'an option of the lock, as in locks.mutex(key, { ttl }), or of connect() and createLocks() for all locks',
  reentrant: 'an option of mutex() and rw()',
  limit: 'the second argument of semaphore(key, limit)',
  after: 'an option of release()',
  again: 'an option of lead()',
  resignOn: 'an option of lead()',
  grace: 'an option of drain(), and of signals, as in connect(url, { signals: { grace } })',
  every: 'an option of watch() and sample()',
  zone: OF_JOB,
  missed: OF_JOB,
  overlap: OF_JOB,
  takeover: OF_JOB,
  keys: 'an option of sample()',
  prefixes: 'an option of sample()',
  keep: OF_ONCE,
  crashed: OF_ONCE,
  failures: OF_ONCE,
  scope: 'an option of run() of once()',
  fingerprint: 'an option of run() of once()',
  negative: OF_CACHE,
  softWait: 'an option of cache() and of get()',
  early: OF_CACHE,
  jitter: OF_CACHE,
  leaseTtl: OF_CACHE,
  hold: 'an option of stock() and of reserve()',
  late: 'an option of confirm(), of a stock',
  force: 'an option of set() and remove(), of a stock',
  newest: OF_REPLACE,
  upload: OF_REPLACE,
  order: OF_REPLACE,
  holder: OF_LOCKS,
  callTimeout: OF_LOCKS,
  checkOrder: OF_LOCKS,
  logger: OF_LOCKS,
  warnAfter: OF_LOCKS,
  signals: OF_LOCKS,
  client: OF_ENGINE,
  clients: OF_ENGINE,
  subscriber: OF_ENGINE,
  prefix: OF_ENGINE,
  durability: OF_ENGINE,
  file: OF_ENGINE,
  schema: OF_ENGINE,
  listenUrl: OF_ENGINE,
  endpoints: OF_ENGINE,
}

const WAIT = "how long to stand in line is { wait: '5s' } of acquire() and using()"
const NO_RETRIES = `waiters stand in line and are woken, they do not retry; ${WAIT}, and tryAcquire() is one try`
const TTL = "how long a lease lives without renewal is { ttl: '30s' } of the lock, or of connect() and createLocks()"
const RENEWED = 'leases are renewed by themselves, every third of their ttl, until they are released'
const MAX_HOLD = "how long a lease may be held is { maxHold: '10m' } of the lock, or of acquire() and using()"
const MARGIN = 'holders stop before the engine lets the next one in, by a margin that is built in'
const LOSS = 'lease.signal aborts when a lease is lost, and its reason says why'
const NAME = 'the name of this process is { holder } of connect() and createLocks(); ids are made by Holdfast'
const FILE = "where locks are kept is the engine's business: sqlite({ file }), or connect('sqlite:path')"

/** Options of other libraries, by name: what takes their place. */
export const FOREIGN_OPTIONS: Readonly<Record<string, string>> = {
  // redlock, in all its versions
  retryCount: NO_RETRIES,
  retryDelay: NO_RETRIES,
  retryJitter: NO_RETRIES,
  driftFactor: MARGIN,
  automaticExtensionThreshold: RENEWED,
  // redis-semaphore
  acquireTimeout: WAIT,
  acquireAttemptsLimit: NO_RETRIES,
  retryInterval: NO_RETRIES,
  lockTimeout: TTL,
  refreshInterval: RENEWED,
  // What heartbeats are called in many places.
  heartbeat: RENEWED,
  heartbeatInterval: RENEWED,
  onLockLost: LOSS,
  identifier: NAME,
  identifierSuffix: NAME,
  externallyAcquiredIdentifier: NAME,
  acquiredExternally: NAME,
  // proper-lockfile
  stale: TTL,
  update: RENEWED,
  retries: NO_RETRIES,
  onCompromised: LOSS,
  lockfilePath: FILE,
  realpath: FILE,
  fs: FILE,
  // async-lock
  timeout: `${WAIT}; how long one call to the engine may take is { callTimeout } of connect() and createLocks()`,
  domainReentrant: 'a lock that nests is locks.mutex(key, { reentrant: true })',
  maxOccupationTime: MAX_HOLD,
  maxExecutionTime: MAX_HOLD,
  maxPending: 'an engine says how long a line may be, with LineFullError',
  skipQueue: 'no entry of a line overtakes another',
  // redlock-universal
  retryAttempts: NO_RETRIES,
  defaultRetryAttempts: NO_RETRIES,
  defaultRetryDelay: NO_RETRIES,
  maxRetries: NO_RETRIES,
  defaultTTL: TTL,
  clockDriftFactor: MARGIN,
  extensionThresholdRatio: RENEWED,
  minExtensionInterval: RENEWED,
  keyPrefix: 'what comes before every key is { prefix } of the engine, as in redis({ client, prefix })',
  quorum: 'a Redlock needs a majority of its servers, always',
  // navigator.locks
  ifAvailable: 'one try is tryAcquire()',
  steal: 'a holder is removed with locks.evict(key, token)',
  mode: 'shared and exclusive are two locks: locks.rw(key).read and locks.rw(key).write',
}
