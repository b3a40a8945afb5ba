/**
 * The fail point `failCommand`, as servers with test commands have it: the next commands of a name are not answered,
 * are refused with an error, are answered late, or are done and answered with a failed write concern.
 */
import { CommandError, nameOfCode } from './errors.ts'
import type { Document } from './values.ts'

/** The connection is closed instead of an answer. */
export class ConnectionClosed extends Error {}

export class FailPoint {
  #left = 0
  #data: Document = {}

  configure({ mode, data = {} }: { mode?: Document | string; data?: Document }): void {
    this.#data = data
    this.#left =
      mode === 'off'
        ? 0
        : mode === 'alwaysOn'
          ? Number.POSITIVE_INFINITY
          : Number((mode as Document | undefined)?.times ?? 0)
  }

  /** Before the command. Gives what has to be added to its answer. */
  async meet(name: string): Promise<Document> {
    const { failCommands = [], closeConnection, errorCode, errorLabels, writeConcernError } = this.#data
    if (this.#left <= 0 || !(failCommands as string[]).includes(name)) return {}
    this.#left -= 1
    const { blockConnection, blockTimeMS } = this.#data
    if (blockConnection === true) await new Promise((resolve) => setTimeout(resolve, Number(blockTimeMS)))
    if (closeConnection === true) throw new ConnectionClosed()
    if (errorCode !== undefined) {
      const code = Number(errorCode)
      throw new CommandError(code, "Failing command via 'failCommand' failpoint", {}, errorLabels ?? [])
    }
    if (writeConcernError === undefined) return {}
    const { code, errmsg = "Failing command via 'failCommand' failpoint", ...rest } = writeConcernError as Document
    const failure = { code, codeName: nameOfCode(Number(code)), errmsg, ...rest }
    return { writeConcernError: failure, ...(errorLabels === undefined ? {} : { errorLabels }) }
  }
}
