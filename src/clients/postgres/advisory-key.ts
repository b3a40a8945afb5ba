/**
 * The number under which PostgreSQL knows a name: the first 64 bits of its SHA-256, signed. Fewer bits collide
 * (`hashtext` has 32: with 77,000 names it is as likely as not), and two names with one number would exclude each other
 * for no reason. In SQL, to look for it in pg_locks:
 *
 *     ('x' || left(encode(sha256(convert_to('name', 'UTF8')), 'hex'), 16))::bit(64)::bigint
 */
import { createHash } from 'node:crypto'

export function advisoryKey(name: string): bigint {
  return createHash('sha256').update(name, 'utf8').digest().readBigInt64BE(0)
}
