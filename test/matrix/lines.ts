/** What play.ts prints, a line of JSON each, and scripts/matrix.mjs reads. */
export type Line =
  | {
      readonly type: 'about'
      readonly runtime: string
      readonly server: string | undefined
      /** What the locks in a file take for the host's monotonic clock: all runtimes have to agree. */
      readonly clockNs: string
    }
  | {
      readonly type: 'case'
      readonly name: string
      readonly seconds: number
      /** `unsteady`: it failed, and passed when it was played again. */
      readonly outcome: 'passed' | 'failed' | 'unsteady' | 'not applicable'
      readonly why?: string | undefined
    }
