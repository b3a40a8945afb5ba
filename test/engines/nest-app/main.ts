/**
 * A shop, as an application of Nest: written, compiled and started as its users do it. It listens on a free port and
 * tells which. What its methods do goes to a file that all processes append to.
 *
 * `main.js JOURNAL`, with HOLDFAST_URL. A method stays in its work until the file `JOURNAL.open` is there.
 */
import 'reflect-metadata'
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Body, Controller, Get, Headers, Inject, Injectable, Module, Param, Post, UseFilters } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Cron, ScheduleModule } from '@nestjs/schedule'
import type { Locks } from 'holdfast'
import type { Run } from 'holdfast/cron'
import {
  currentAttempt,
  currentLease,
  HoldfastFilter,
  HoldfastHealth,
  HoldfastModule,
  InjectLocks,
  Locked,
  Once,
  OncePerTick,
} from 'holdfast/nest'

const [, , journal = ''] = process.argv

interface Payment {
  readonly tenant: string
  readonly key: string
  readonly cents: number
}

function note(what: string, about: object): void {
  appendFileSync(journal, `${JSON.stringify({ what, pid: process.pid, ...about })}\n`)
}

async function untilOpen(): Promise<void> {
  while (!existsSync(`${journal}.open`)) await sleep(5)
}

@Injectable()
class Shop {
  @Locked('order:{0}', { wait: '20s' })
  async ship(id: string, work: string): Promise<string> {
    const { token, signal } = currentLease()
    note('begin', { id, token: String(token) })
    if (work === 'long') await untilOpen()
    if (work === 'until lost') {
      while (!signal.aborted) await sleep(5)
      note('aborted', { id })
    }
    note('end', { id, token: String(token) })
    return `shipped ${id}`
  }

  @Once('{0.key}', { scope: '{0.tenant}', fingerprint: (payment: Payment) => payment, wait: '20s' })
  async pay(payment: Payment, work: string): Promise<{ charged: number; attempt: string }> {
    const { id, number } = currentAttempt()
    note('charge', { key: payment.key, id, number })
    if (work === 'long') await untilOpen()
    return { charged: payment.cents, attempt: id }
  }

  @Cron('* * * * * *', { timeZone: 'UTC' })
  @OncePerTick()
  async report(run: Run): Promise<void> {
    note('tick', { tick: run.tick.getTime() })
  }
}

@Controller()
@UseFilters(HoldfastFilter)
class Api {
  constructor(
    @Inject(Shop) private readonly shop: Shop,
    @InjectLocks() private readonly locks: Locks,
    @Inject(HoldfastHealth) private readonly health: HoldfastHealth,
  ) {}

  @Post('orders/:id/:work')
  async ship(@Param('id') id: string, @Param('work') work: string): Promise<string> {
    return this.shop.ship(id, work)
  }

  @Post('payments')
  async pay(@Body() payment: Payment, @Headers('x-work') work: string): Promise<object> {
    return this.shop.pay(payment, work)
  }

  /** A route that is locked itself, and does not wait. */
  @Locked('order:{0}', { wait: 0 })
  @Post('tries/:id')
  async attempt(@Param('id') id: string): Promise<string> {
    return `${id} was free`
  }

  @Get('lines/:key')
  async line(@Param('key') key: string): Promise<number> {
    return (await this.locks.inspect(key)).entries.length
  }

  @Get('ready')
  async ready(): Promise<object> {
    return this.health.check('locks')
  }
}

@Module({
  imports: [ScheduleModule.forRoot(), HoldfastModule.forRootAsync({ useFactory: () => ({ ttl: '2s', grace: '10s' }) })],
  controllers: [Api],
  providers: [Shop],
})
class App {}

const app = await NestFactory.create(App, { logger: ['error'] })
app.enableShutdownHooks()
await app.listen(0, '127.0.0.1')
process.send?.({ url: await app.getUrl() })
