/**
 * etcd for tests and benchmarks: one server of our own, or the one HOLDFAST_TEST_ETCD_URL names. For several members,
 * see ensemble.ts.
 *
 * A server that was not started here is never killed, paused or restarted: its `process` is undefined. Suites that do
 * such things ask for `findOwnEtcd`.
 */
import { chmodSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { findServer } from './other-servers.ts'
import { freePort } from './ports.ts'
import { Missing, type Program, type Recipe } from './programs.ts'
import { ServerProcess } from './servers.ts'
import type { Authority } from './tls.ts'
import { serverUser } from './user.ts'

const recipe: Recipe = {
  name: 'etcd',
  program: 'etcd',
  places: [],
  packages: ['etcd-server'],
  install:
    '`apt-get install etcd-server` (Debian, Ubuntu) or `brew install etcd` (macOS), or set HOLDFAST_TEST_ETCD_URL',
}

/** Where an etcd comes from: a program to start, or the URL of one that runs. */
export type EtcdSource = { readonly program: Program } | { readonly url: string }

export interface EtcdOptions {
  /** Serve clients with TLS, and with this certificate. */
  readonly authority?: Authority
  /** Further arguments of etcd. */
  readonly args?: readonly string[]
}

/** A member among others: what it is called, where it is reached by them, and who they are. */
export interface Membership {
  readonly name: string
  readonly peerPort: number
  /** Where others reach it: the same port, or a proxy before it. */
  readonly advertisedPort: number
  /** All members, as `--initial-cluster` wants them. */
  readonly all: string
}

export async function findEtcd(): Promise<EtcdSource | Missing> {
  const url = process.env.HOLDFAST_TEST_ETCD_URL
  return url ? { url } : await findOwnEtcd()
}

/** For suites that kill and pause their server. */
export async function findOwnEtcd(): Promise<{ readonly program: Program } | Missing> {
  const program = await findServer(recipe)
  return program instanceof Missing ? program : { program }
}

export class EtcdServer implements AsyncDisposable {
  readonly host: string
  readonly port: number
  /** Undefined for a server that is not ours. */
  readonly process: ServerProcess | undefined

  static async start(source: EtcdSource, options: EtcdOptions = {}): Promise<EtcdServer> {
    if ('url' in source) return await EtcdServer.#at(new URL(source.url))
    const peerPort = await freePort()
    return await EtcdServer.member(source.program, alone(peerPort), options)
  }

  static async member(program: Program, membership: Membership, options: EtcdOptions = {}): Promise<EtcdServer> {
    const [port, metricsPort] = [await freePort(), await freePort()]
    const process = await ServerProcess.start({
      name: 'etcd',
      program,
      args: (folder) => argumentsOf(folder, port, metricsPort, membership, options),
      ready: () => healthy(metricsPort),
    })
    return new EtcdServer('127.0.0.1', port, process)
  }

  /** A server asked for by name must be there: no answer is a failure, not a skip. */
  static async #at(url: URL): Promise<EtcdServer> {
    const server = new EtcdServer(url.hostname, Number(url.port || 2379), undefined)
    await healthy(server.port, server.host)
    return server
  }

  private constructor(host: string, port: number, process: ServerProcess | undefined) {
    this.host = host
    this.port = port
    this.process = process
  }

  get url(): string {
    return `etcd://${this.host}:${this.port}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process?.[Symbol.asyncDispose]()
  }
}

function alone(peerPort: number): Membership {
  return { name: 'alone', peerPort, advertisedPort: peerPort, all: `alone=http://127.0.0.1:${peerPort}` }
}

function argumentsOf(
  folder: string,
  port: number,
  metricsPort: number,
  membership: Membership,
  options: EtcdOptions,
): readonly string[] {
  const { name, peerPort, advertisedPort, all } = membership
  const { authority, args = [] } = options
  const clients = `${authority === undefined ? 'http' : 'https'}://127.0.0.1:${port}`
  const tls = authority === undefined ? [] : ['--cert-file', authority.certificateFile, '--key-file', authority.keyFile]
  return [
    ...['--name', name, '--data-dir', dataFolder(folder), '--log-level', 'warn', '--logger', 'zap'],
    ...['--listen-client-urls', clients, '--advertise-client-urls', clients],
    ...[
      '--listen-peer-urls',
      `http://127.0.0.1:${peerPort}`,
      '--initial-advertise-peer-urls',
      `http://127.0.0.1:${advertisedPort}`,
    ],
    ...['--initial-cluster', all, '--initial-cluster-state', 'new', '--initial-cluster-token', 'holdfast'],
    // Health is asked for without a certificate, a user or a client of ours.
    ...['--listen-metrics-urls', `http://127.0.0.1:${metricsPort}`],
    // Written, but not waited for: a killed process loses nothing by it, and tests are quick on slow disks.
    '--unsafe-no-fsync',
    ...tls,
    ...args,
  ]
}

/** etcd wants it closed to all others, and its own user to have made it or own it. */
function dataFolder(folder: string): string {
  const data = join(folder, 'data')
  if (serverUser === undefined) {
    mkdirSync(data, { recursive: true })
    chmodSync(data, 0o700)
  }
  return data
}

/** It answers once it has a leader and can read. */
async function healthy(port: number, host = '127.0.0.1'): Promise<void> {
  const answer = await fetch(`http://${host}:${port}/health`, { signal: AbortSignal.timeout(5_000) })
  const { health } = (await answer.json()) as { health: string }
  if (health !== 'true') throw new Error(`health is ${health}`)
}
