/** Which errors of a connection time does not mend: a caller is told of those at once, and waits for the others. */
import { expect, test } from 'vitest'
import { isLasting as lastsOnMysql } from '../../src/clients/mysql/errors.ts'
import { isLasting as lastsOnPostgres } from '../../src/clients/postgres/errors.ts'
import { isPassing as passesOnRedis } from '../../src/clients/redis/errors.ts'
import { isUntrusted } from '../../src/clients/shared/driver-errors.ts'

const failed = (code?: string): Error => Object.assign(new Error('said'), code === undefined ? {} : { code })

test.each([
  'CERT_CHAIN_TOO_LONG',
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'CERT_REJECTED',
  'CERT_REVOKED',
  'CERT_SIGNATURE_FAILURE',
  'CERT_UNTRUSTED',
  'CRL_HAS_EXPIRED',
  'CRL_NOT_YET_VALID',
  'CRL_SIGNATURE_FAILURE',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'ERROR_IN_CERT_NOT_AFTER_FIELD',
  'ERROR_IN_CERT_NOT_BEFORE_FIELD',
  'ERROR_IN_CRL_LAST_UPDATE_FIELD',
  'ERROR_IN_CRL_NEXT_UPDATE_FIELD',
  'ERR_TLS_CERT_ALTNAME_FORMAT',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'HOSTNAME_MISMATCH',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'PATH_LENGTH_EXCEEDED',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY',
  'UNABLE_TO_DECRYPT_CERT_SIGNATURE',
  'UNABLE_TO_DECRYPT_CRL_SIGNATURE',
  'UNABLE_TO_GET_CRL',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
])('%s: the certificate of the server does not convince, with any driver', (code) => {
  const error = failed(code)
  expect(isUntrusted(error)).toBe(true)
  expect(isUntrusted(error, /^OTHER/)).toBe(true)
  expect([lastsOnPostgres(error), lastsOnMysql(error), passesOnRedis(error)]).toEqual([true, true, false])
})

test.each(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ERR_TLS_HANDSHAKE_TIMEOUT', 'OUT_OF_MEM', undefined])(
  '%s may pass',
  (code) => {
    const error = failed(code)
    expect(isUntrusted(error)).toBe(false)
    expect([lastsOnPostgres(error), lastsOnMysql(error), passesOnRedis(error)]).toEqual([false, false, true])
  },
)

test('what has no code says nothing of a certificate', () => {
  for (const thrown of [undefined, null, 'CERT_HAS_EXPIRED', { code: 7 }]) expect(isUntrusted(thrown)).toBe(false)
})

test('a driver, or a server that asks for our certificate, has codes besides', () => {
  const refused = failed('ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED')
  expect(isUntrusted(refused)).toBe(false)
  expect(isUntrusted(refused, /^ERR_SSL_/)).toBe(true)
  expect(lastsOnMysql(failed('HANDSHAKE_SSL_ERROR'))).toBe(true)
})
