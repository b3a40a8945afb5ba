/** Words of four letters, such as `srvr`: a server answers them in plain text, to any client, and hangs up. */
import type { Clock } from '../../core/clock.ts'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'
import { openSocket } from './socket.ts'

const LIMIT_MS = 2_000
const LONGEST_ANSWER = 2 ** 20

/** Undefined: the server does not answer, or may not. */
export function askWord(
  endpoint: Endpoint,
  tls: TlsCertificates | undefined,
  clock: Clock,
  word: string,
): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = openSocket(endpoint, tls)
    let answer = ''
    const end = (): void => {
      limit.cancel()
      socket.destroy()
      resolve(answer === '' || answer.includes('not in the whitelist') ? undefined : answer)
    }
    const limit = clock.timer(LIMIT_MS, end)
    socket.on('data', (piece: Buffer) => {
      answer += piece.toString()
      if (answer.length > LONGEST_ANSWER) end()
    })
    socket.on('error', end)
    socket.on('close', end)
    socket.write(word)
  })
}
