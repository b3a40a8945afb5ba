/** A value as a message shows it: a text in quotes. */
export function quoted(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : String(value)
}
