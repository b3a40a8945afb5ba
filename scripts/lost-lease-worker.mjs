/** One process of the timeline `lost-lease`: it holds a lock until it is told to release it, or until it is lost. */
import { once } from 'node:events'
import { channels, connect } from 'holdfast'

const [, , url] = process.argv
channels.jeopardy.subscribe(() => process.send('jeopardy'))
const locks = await connect(url, { ttl: '2s' })
process.send('waits')
const lease = await locks.mutex('till').acquire()
process.send('holds')
lease.signal.addEventListener('abort', () => process.send('aborted'))
await Promise.race([once(process, 'message'), once(lease.signal, 'abort')])
await lease.release()
await locks.close()
process.disconnect()
