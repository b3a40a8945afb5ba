/** `npm run bench -- memory sqlite`: one file for each question; without arguments, all of them. */
import { cpus } from 'node:os'

const BENCHES: Readonly<Record<string, () => Promise<{ run(): Promise<void> }>>> = {
  memory: () => import('./memory.ts'),
  sqlite: () => import('./sqlite.ts'),
  'start-up': () => import('./start-up.ts'),
  redis: () => import('./redis.ts'),
  redlock: () => import('./redlock.ts'),
  postgres: () => import('./postgres.ts'),
  etcd: () => import('./etcd.ts'),
  'etcd-recovery': () => import('./etcd-recovery.ts'),
  zookeeper: () => import('./zookeeper.ts'),
  mysql: () => import('./mysql.ts'),
  mongodb: () => import('./mongodb.ts'),
  inventory: () => import('./inventory.ts'),
  guards: () => import('./guards.ts'),
  once: () => import('./once.ts'),
  'rate-limit': () => import('./rate-limit.ts'),
  stock: () => import('./stock.ts'),
  cache: () => import('./cache.ts'),
}

const asked = process.argv.slice(2)
const unknown = asked.filter((name) => !(name in BENCHES))
if (unknown.length > 0) {
  console.error(`unknown benchmark: ${unknown.join(', ')}; there are ${Object.keys(BENCHES).join(', ')}`)
  process.exit(64)
}
console.log(
  `Node ${process.version}, ${cpus().length} cores. Compare within one run; absolute figures depend on the machine and its neighbours.`,
)
for (const name of asked.length > 0 ? asked : Object.keys(BENCHES)) {
  console.log(`\n== ${name} ==`)
  await (await BENCHES[name]?.())?.run()
}
