/**
 * Errors of Holdfast as responses of HTTP, on Express and on Fastify: 409, 422 and 503 as `httpProblem()` has them, and
 * 500 for what is a mistake of the program. It is used only where you say so: `app.useGlobalFilters(new
 * HoldfastFilter())`, or `@UseFilters(HoldfastFilter)` at a controller.
 */
import { type ArgumentsHost, Catch, type ExceptionFilter, Logger } from '@nestjs/common'
import { HoldfastError } from '../../core/errors.ts'
import { httpProblem } from '../../recipes/http/problems.ts'

interface ExpressResponse {
  readonly headersSent: boolean
  statusCode: number
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
}

interface FilterReply {
  readonly sent: boolean
  code(status: number): unknown
  headers(fields: object): unknown
  send(body: string): unknown
}

const INTERNAL = {
  status: 500,
  headers: { 'content-type': 'application/json; charset=utf-8' },
  // As Nest answers to an error that no filter knows.
  body: { statusCode: 500, message: 'Internal server error' },
}

/** Answers requests whose handler threw an error of Holdfast. */
export class HoldfastFilter implements ExceptionFilter<HoldfastError> {
  readonly #log = new Logger(HoldfastFilter.name)

  catch(error: HoldfastError, host: ArgumentsHost): void {
    // Elsewhere (messages, sockets, GraphQL) there is no response to write: the error goes on.
    if (host.getType() !== 'http') throw error
    const found = httpProblem(error)
    if (found === undefined) this.#log.error(error.message, error.stack)
    const { status, headers, body } = found ?? INTERNAL
    const response = host.switchToHttp().getResponse<ExpressResponse | FilterReply>()
    const text = JSON.stringify(body)
    if ('code' in response) {
      if (response.sent) return
      response.code(status)
      response.headers(headers)
      response.send(text)
      return
    }
    if (response.headersSent) {
      response.end('')
      return
    }
    response.statusCode = status
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    response.end(text)
  }
}

Catch(HoldfastError)(HoldfastFilter)
