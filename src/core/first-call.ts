/** What is done once, however often it is asked for, and by whatever it calls itself. */

/**
 * Does `work`. `remember` is given the promise of its answer before it begins: a listener that it calls may ask for the
 * same again, and has to find that it is being done.
 */
export function firstCall<Value>(
  remember: (answer: Promise<Value>) => void,
  work: () => Promise<Value>,
): Promise<Value> {
  let settle!: (answer: Promise<Value>) => void
  const answer = new Promise<Value>((resolve) => {
    settle = resolve
  })
  remember(answer)
  settle(work())
  return answer
}
