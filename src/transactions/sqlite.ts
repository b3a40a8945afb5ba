/** Holds of rows inside of the caller's own transaction on SQLite: the door. `holdfast/sqlite` exports it again. */
export type {
  CancelRowResult,
  ConfirmRowOptions,
  ConfirmRowResult,
  ExtendRowOptions,
  ExtendRowResult,
  ReserveRowOptions,
  ReserveRowResult,
  RowHoldOptions,
  RowNotHad,
} from './row-hold-options.ts'
export { cancelRow, confirmRow, extendRow, reserveRow, setupRowHolds } from './sqlite/row-holds.ts'
export type { Table, Where } from './statements.ts'
