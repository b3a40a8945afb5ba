/** What was thrown, as a text for records and warnings. Anything can be thrown, also what cannot be made a string. */
export function thrownText(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown)
  } catch {
    // An object without a prototype.
    return typeof thrown
  }
}
