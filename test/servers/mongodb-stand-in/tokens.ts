/**
 * Resume tokens in the form of MongoDB 5.0: hexadecimal digits that sort as the events do. First comes the time, then
 * what kind of token it is, the place in the transaction, whether it is that of an `invalidate`, and for an event the
 * collection and the document.
 */
import { type ObjectId, Timestamp } from 'bson'
import type { Entry } from './data.ts'
import { CommandError } from './errors.ts'
import { keyOf, typeOf } from './values.ts'

const VERSION_1 = '2B02'
const POINT_IN_TIME = '29'
const EVENT = '2C0100'
const END = '04'

export interface ResumeToken {
  readonly _data: string
}

export interface Position {
  readonly at: Timestamp
  readonly index: number
  readonly invalidated: boolean
  /** Whether an event at this very place was seen already. */
  readonly seen: boolean
}

/** After everything that happened before this time. */
export function tokenOfTime(at: Timestamp): ResumeToken {
  return { _data: `82${timeOf(at)}${VERSION_1}${POINT_IN_TIME}${POINT_IN_TIME}6E${END}` }
}

export function tokenOfEvent({ at, index, uuid, kind, id }: Entry, invalidated = false): ResumeToken {
  const document = kind === 'drop' || kind === 'rename' ? '' : `463C5F696400${textOf(id)}00`
  const flag = invalidated ? '6F' : '6E'
  return {
    _data: `82${timeOf(at)}${VERSION_1}${EVENT}${small(index)}${flag}5A1004${hexadecimal(uuid)}${document}${END}`,
  }
}

export function positionOf({ _data }: ResumeToken): Position {
  const parts = /^82(\w{8})(\w{8})2B02(29|2C0100)(29|2B(\w\w)|2C(\w{4}))(6E|6F)/.exec(_data)
  if (parts === null) throw new CommandError(260, `Resume token could not be read: ${_data}`)
  const [, seconds = '', counter = '', kind, , one, two, flag] = parts
  return {
    at: new Timestamp({ t: Number.parseInt(seconds, 16), i: Number.parseInt(counter, 16) }),
    index: Number.parseInt(one ?? two ?? '0', 16) / 2,
    invalidated: flag === '6F',
    seen: kind === EVENT,
  }
}

function timeOf({ t, i }: Timestamp): string {
  return [t, i].map((part) => part.toString(16).padStart(8, '0').toUpperCase()).join('')
}

/** Small whole numbers, written twice as large. */
function small(value: number): string {
  if (value === 0) return '29'
  const digits = (value * 2).toString(16).toUpperCase()
  return value < 128 ? `2B${digits.padStart(2, '0')}` : `2C${digits.padStart(4, '0')}`
}

/** Strings and ObjectIds as the server has them; other ids in a form of our own, since only we read it. */
function textOf(id: unknown): string {
  if (typeOf(id) === 'objectId') return `64${(id as ObjectId).toHexString().toUpperCase()}`
  const text = typeof id === 'string' ? id : keyOf(id)
  return `3C${hexadecimal(Buffer.from(text))}00`
}

const hexadecimal = (bytes: Buffer): string => bytes.toString('hex').toUpperCase()
