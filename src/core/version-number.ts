/** Versions as servers and runtimes say them: `3.4.23`, `10.11.14-MariaDB-0+deb12u2`. */

/** Whether `version` is `least` or newer. What `least` does not name does not count; what says no number is older. */
export function isAtLeast(version: string, least: readonly number[]): boolean {
  const parts = version.split('.')
  for (const [index, wanted] of least.entries()) {
    const part = Number.parseInt(parts[index] ?? '0', 10)
    if (part !== wanted) return part > wanted
  }
  return true
}
