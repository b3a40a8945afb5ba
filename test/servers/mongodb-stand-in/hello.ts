/** The first thing that a client asks: who is there, and may it write here? */
import type { Call, Command } from './calls.ts'
import type { Document } from './values.ts'

/** What a 5.0 speaks. */
const WIRE_VERSION = 13

/** A client that says what it knows already waits for news, for as long as it says. */
async function hello(call: Call): Promise<Document> {
  const { server, command } = call
  const known = (command.topologyVersion as Document | undefined)?.counter as bigint | undefined
  if (known !== undefined && BigInt(known) === server.topologyCounter)
    await server.topologyChange(Number(command.maxAwaitTimeMS ?? 0))
  const old = call.name !== 'hello'
  const topologyVersion = { processId: server.processId, counter: server.topologyCounter }
  const primary = { [old ? 'ismaster' : 'isWritablePrimary']: server.isPrimary }
  const about = server.isReplicaSet ? { topologyVersion, ...memberOf(call, primary) } : { ...primary, topologyVersion }
  return {
    ...(old && command.helloOk === true ? { helloOk: true } : {}),
    ...about,
    maxBsonObjectSize: 16777216,
    maxMessageSizeBytes: 48000000,
    maxWriteBatchSize: 100000,
    localTime: new Date(Date.now()),
    logicalSessionTimeoutMinutes: 30,
    connectionId: call.connection,
    minWireVersion: 0,
    maxWireVersion: WIRE_VERSION,
    readOnly: false,
    ...server.mechanisms(command),
  }
}

function memberOf({ server }: Call, primary: Document): Document {
  const { address, data, isPrimary, electionId } = server
  const optime = { ts: data.last, t: 1n }
  const date = new Date(data.last.t * 1_000)
  return {
    hosts: [address],
    setName: 'rs',
    setVersion: 1,
    ...primary,
    secondary: !isPrimary,
    ...(isPrimary ? { primary: address } : {}),
    me: address,
    ...(isPrimary ? { electionId } : {}),
    lastWrite: { opTime: optime, lastWriteDate: date, majorityOpTime: optime, majorityWriteDate: date },
  }
}

export const HELLO: Readonly<Record<string, Command>> = { hello, ismaster: hello, isMaster: hello }
