/**
 * How long a session surely lives, by our own clock. Pure: it is told what was sent and answered, and when.
 *
 * **What a server's answer proves.** The leader of the ensemble decides when a session ends. A follower answers pings
 * by itself, and tells its leader once in half a tick which sessions it has heard of. A follower that is cut off from
 * the others goes on answering for several ticks, while the leader counts the sessions of its clients as silent. So the
 * answer to a ping, or to a read, proves nothing. The answer to a *write* does: most servers have taken part in it.
 *
 * **From when it counts.** All that a follower tells its leader comes in order. When the leader has done our write, it
 * has also heard of everything that we had sent half a tick before. So a write that was answered counts from the last
 * thing that was sent on the same connection half a tick before it. No session is shorter than two ticks, unless a
 * server was configured so (`holdfast doctor` tells): a quarter of the session time is enough.
 *
 * A session that begins is itself a write, and counts from its request. One that is taken up again on a new connection
 * is known to the leader from then on; but that the leader still leads is known only after the next write.
 */

/** When a write is answered, the leader has heard of all that was sent by this share of the session time before it. */
const HEARD_SHARE = 1 / 4
/** Of two sends that are closer together than this share of the session time, one is noted. */
const NOTE_SHARE = 1 / 32

export class SessionLife {
  #timeoutMs = 0
  #confirmedAt = Number.NEGATIVE_INFINITY
  /** When the leader itself heard of this connection. */
  #attachedAt = Number.POSITIVE_INFINITY
  /** When something was sent on this connection, oldest first. */
  #sends: number[] = []

  /** The server has granted a session, asked for at `sentAt`. */
  begun(timeoutMs: number, sentAt: number): void {
    this.#confirmedAt = sentAt
    this.attached(timeoutMs, sentAt)
  }

  /** The session goes on with a new connection, asked for at `sentAt`. */
  attached(timeoutMs: number, sentAt: number): void {
    this.#timeoutMs = timeoutMs
    this.#attachedAt = sentAt
    this.#sends = []
  }

  /** Something was sent on the connection. */
  sent(at: number): void {
    // From what is older than the session time nothing can be counted any more.
    while ((this.#sends[0] ?? at) < at - this.#timeoutMs) this.#sends.shift()
    const last = this.#sends.at(-1)
    if (last === undefined || at - last >= this.#timeoutMs * NOTE_SHARE) this.#sends.push(at)
  }

  /** A write that was sent at `sentAt`, on the connection that is in use, was answered. */
  written(sentAt: number): void {
    const heardAt = sentAt - this.#timeoutMs * HEARD_SHARE
    let heard = this.#attachedAt <= sentAt ? this.#attachedAt : Number.NEGATIVE_INFINITY
    while (this.#sends.length > 0 && (this.#sends[0] as number) <= heardAt) heard = this.#sends.shift() as number
    this.#confirmedAt = Math.max(this.#confirmedAt, heard)
  }

  /** How long it lives from `at` on, at least. */
  leftMs(at: number): number {
    return Math.max(0, this.#confirmedAt + this.#timeoutMs - at)
  }
}
