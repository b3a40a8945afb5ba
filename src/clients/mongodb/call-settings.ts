/** What is said with each call, so that what the user's client is set to does not change it. */

/** Whole numbers come as numbers where they fit, fields as values, bytes as a `Buffer`. */
export const PLAIN_VALUES = {
  promoteLongs: true,
  promoteValues: true,
  promoteBuffers: true,
  useBigInt64: false,
  raw: false,
  fieldsAsRaw: {},
  bsonRegExp: false,
  ignoreUndefined: false,
  serializeFunctions: false,
} as const

/** A majority has it, and the primary is asked. */
export const BY_MAJORITY = {
  writeConcern: { w: 'majority' },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
} as const
