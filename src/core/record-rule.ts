/**
 * The rule of a change (core/store.ts): which of its conditions is not met. Without I/O. The engines that compare in
 * this process use it as it is (etcd, ZooKeeper, SQLite, memory); the others have it in the language of their server,
 * and are compared with it.
 */
import type { Stored, When } from './store.ts'

/** The first that is not met, in the order of `Put`. `holds`: whether that entry holds the line of the same key. */
export function unmetCondition(
  { holding, absent, version, markBelow }: When,
  found: Pick<Stored, 'value' | 'version' | 'mark'>,
  holds: (id: string) => boolean,
): keyof When | undefined {
  if (holding !== undefined && !holds(holding)) return 'holding'
  if (absent !== undefined && found.value !== null) return 'absent'
  if (version !== undefined && found.version !== version) return 'version'
  if (markBelow !== undefined && found.mark >= markBelow) return 'markBelow'
  return undefined
}
