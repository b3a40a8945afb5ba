/** From a URL to the engine, on a pool that we make; see url.ts for what one looks like. */

import { poolAt } from '../../clients/mysql/connect.ts'
import { parseUrl } from '../../clients/mysql/url.ts'
import type { MysqlEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

/** It connects by itself, and closes its connections when it is closed. */
export async function openMysql(url: string, options: CommonOptions = {}): Promise<MysqlEngine> {
  const { target, options: said } = parseUrl(url)
  return engineOn(await poolAt(target), { ...said, ...options })
}
