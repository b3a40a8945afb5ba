/** Wrong input: what is wrong, what was meant, exit 64, and never a stack trace. And help. */
import { existsSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.ts'
import { printable } from '../../src/cli/output.ts'
import { eventually, World } from './holdfast.ts'

let world: World
beforeAll(() => {
  world = new World()
})
afterAll(() => world[Symbol.asyncDispose]())

const WRONG: readonly (readonly [args: string, says: RegExp])[] = [
  ['', /usage: holdfast COMMAND/],
  ['rn k -- true', /unknown command 'rn'; did you mean 'run'\? holdfast --help lists them/],
  ['evcit k', /did you mean 'evict'\?/],
  ['constructor', /unknown command 'constructor'/],
  ['__proto__', /unknown command '__proto__'/],
  ['ls --toString', /unknown option '--toString'/],
  ['completion valueOf', /no completion for 'valueOf'/],
  ['ls --url constructor:', /unknown engine URL/],
  ['migrate --url constructor:x --print', /constructor/],
  ['run k --url memory: -- true', /memory: keeps locks inside one process/],
  ['list', /unknown command 'list'; did you mean 'holdfast ls'\?/],
  ['xyzzy', /unknown command 'xyzzy'; holdfast --help lists them/],
  ['--helpp', /unknown option '--helpp'/],
  ['run', /KEY is missing; usage: holdfast run KEY/],
  ['run k', /no command to run/],
  ['run k true', /put -- before the command: holdfast run k -- true/],
  ['run k --', /no command to run/],
  ['run k extra -- true', /too many arguments: 'extra'/],
  ['run k --timeout 5s -- true', /unknown option '--timeout': it is --wait here \(how long to stand in line/],
  ['run k --nonblock -- true', /unknown option '--nonblock': it is --try-once here/],
  ['ls --timeout 5s', /unknown option '--timeout'$/m],
  ['run k --wiat 5s -- true', /unknown option '--wiat'; did you mean '--wait'\?/],
  ['run k --onlost kill -- true', /did you mean '--on-lost'\?/],
  ['run k -x -- true', /unknown option '-x'/],
  ['run k --wait -- true', /'--wait' needs a value: --wait D/],
  ['run k --shared=yes -- true', /'--shared' takes no value; got 'yes'/],
  ['run k --wait 5 -- true', /--wait needs a unit: 5s, 5ms, 5m or 5h/],
  ['run k --ttl soon -- true', /--ttl must be a duration like 250ms, 30s, 5m or 1h; got 'soon'/],
  ['run k --ttl=-5s -- true', /--ttl must be a duration/],
  ['run k --ttl 1ms -- true', /ttl must be from 50 ms \(sqlite\) to 24 h; got 1 ms/],
  ['run k --limit 0 -- true', /--limit must be a whole number from 1/],
  ['run k --limit 1.5 -- true', /--limit must be a whole number/],
  ['run k --busy-exit 256 -- true', /--busy-exit must be a whole number from 0 to 255/],
  ['run k --on-lost terminate -- true', /--on-lost must be term, kill, ignore; got 'terminate'/],
  ['run k -n --wait 5s -- true', /-n does not wait/],
  ['run k --shared --limit 2 -- true', /--shared has no limit/],
  ['run k -q -v -- true', /exclude each other/],
  ['elect k --on-lost ignore -- true', /two leaders/],
  ['show', /KEY is missing; usage: holdfast show KEY/],
  ['show a b', /too many arguments: 'b'/],
  ['show k -- true', /'show' runs no command/],
  ['show -- a b', /'show' runs no command/],
  ['evict k', /which one\? --token N/],
  ['evict k --token x', /--token must be a whole number; got 'x'/],
  ['completion tcsh', /no completion for 'tcsh'; known: bash, zsh, fish/],
  ['ls --url nosuch://x', /unknown engine URL 'nosuch:\/\/x'; known schemes: .*sqlite:/],
  ['ls --url locks.db', /unknown engine URL 'locks.db'/],
  ['ls --url sqlite://host/file', /names a host/],
  ['ls --url sqlite:x?durabilty=full', /unknown option 'durabilty'/],
  ['ls --url sqlite:x?durability=some', /durability must be 'normal' or 'full'/],
]

test.each(WRONG)('holdfast %s', async (args, says) => {
  const { exit, stdout, stderr } = await world.run(...args.split(' ').filter((arg) => arg !== ''))
  expect(stderr).toMatch(says)
  expect(stderr).not.toMatch(/\n\s+at /)
  expect({ exit, stdout }).toEqual({ exit: 64, stdout: '' })
})

test('a key that begins with - is shown behind --, which ends the options', async () => {
  const { exit, stdout } = await world.run('show', '--json', '--', '-k')
  expect(exit).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({ command: 'show', key: '-k', entries: [] })
  expect(await world.run('evict', '--token', '1', '--', '--key')).toMatchObject({
    exit: 1,
    stderr: expect.stringContaining("'--key'"),
  })
})

test('an argument that is not UTF-8 is refused: the command would get another one', async () => {
  const bytes = 'holdfast run k -- printf %s "$(printf \'caf\\351\')"'
  expect(await world.spawn('sh', ['-c', bytes]).ended).toMatchObject({
    exit: 64,
    stdout: '',
    stderr: expect.stringContaining('not UTF-8'),
  })
})

test('--json tells errors in the same shape', async () => {
  const { exit, stdout, stderr } = await world.run('run', 'k', '--json', '--wiat', '--', 'true')
  expect({ exit, stdout }).toEqual({ exit: 64, stdout: '' })
  expect(JSON.parse(stderr)).toEqual({
    holdfast: 1,
    command: 'run',
    exit: 64,
    error: { kind: 'usage', message: expect.stringContaining('--wait') },
  })
})

test('HOLDFAST_DEBUG=1 shows where', async () => {
  const { stderr } = await world.start(['run', 'k', '--wiat'], { HOLDFAST_DEBUG: '1' }).ended
  expect(stderr).toMatch(/\n\s+at /)
})

test.each(Object.keys(COMMANDS))('holdfast %s --help has examples, and names every option', async (name) => {
  const { exit, stdout, stderr } = await world.run(name, '--help')
  expect({ exit, stderr }).toEqual({ exit: 0, stderr: '' })
  expect(stdout).toMatch(new RegExp(`^holdfast ${name}: `))
  expect(stdout).toContain('examples:\n')
  for (const option of ['--url', '--json', '--help']) expect(stdout).toContain(option)
  expect(await world.run('help', name)).toMatchObject({ exit: 0, stdout })
})

test('holdfast --help and --version', async () => {
  const { exit, stdout } = await world.run('--help')
  expect(exit).toBe(0)
  for (const name of Object.keys(COMMANDS)) expect(stdout).toContain(`  ${name} `)
  expect(await world.run('--version')).toMatchObject({ exit: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+/) })
  expect(await world.json('--version')).toMatchObject({ holdfast: 1, command: 'version' })
})

test('passwords are never printed: not in errors, not in JSON, not to those who wait', async () => {
  const secret = 'hunter2'
  const url = `nosuch://user:${secret}@host/?token=${secret}`
  for (const args of [
    ['ls', '--url', url],
    ['doctor', '--json', '--url', url],
    ['run', 'k', '-v', '--url', url, '--', 'true'],
  ]) {
    const { stdout, stderr } = await world.run(...args)
    expect(stdout + stderr).not.toContain(secret)
    expect(stderr).toContain('nosuch://user:***@host')
  }
  const debug = await world.start(['ls'], { HOLDFAST_URL: url, HOLDFAST_DEBUG: '1' }).ended
  expect(debug.stderr).not.toContain(secret)

  const command = [
    'sleep',
    '60',
    `--password=${secret}`,
    '--api-key',
    secret,
    `PGPASSWORD=${secret}`,
    `postgres://me:${secret}@db/x`,
  ]
  const run = world.start(['run', 'secret', '--', 'sh', '-c', 'exec sleep 60', ...command])
  await eventually(
    'a holder',
    async () => (await world.json<{ entries: unknown[] }>('show', 'secret')).entries.length === 1,
  )
  const shown = await world.run('show', 'secret')
  const waited = await world.run('run', 'secret', '--wait', '1ms', '-v', '--', 'true')
  expect(shown.stdout).toContain('--password=***')
  expect(shown.stdout + waited.stderr).not.toContain(secret)
  run.signal('SIGTERM')
  await run.ended
})

/** Bash completes a line, as it does when TAB is pressed at its end; `keys` are those in use. */
async function completed(line: string, keys: readonly string[] = []): Promise<readonly string[]> {
  const { stdout: script } = await world.run('completion', 'bash')
  expect(await checkSyntax('bash', script)).toBe(0)
  const listing = world.write('listing', ['HELD  WAITING  KEY', ...keys.map((key) => `1 0 ${key}`), ''].join('\n'))
  // As readline does: words are split at white space and, after that, at the characters of COMP_WORDBREAKS.
  const words = line.split(' ').flatMap((word) => word.split(/(:)/).filter((part) => part !== '' || word === ''))
  const program = `${script}
holdfast() { cat '${listing}'; }
line=$1 COMP_LINE=$1 COMP_POINT=\${#line}; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`
  const { stdout } = await world.spawn('bash', ['-c', program, 'bash', line, ...words]).ended
  return stdout.split('\n').slice(0, -1)
}

test('completion scripts: bash completes commands, options and keys', async () => {
  expect(await completed('holdfast e')).toEqual(['evict', 'elect'])
  expect(await completed('holdfast run k --at')).toEqual(['--at-least', '--at-most'])
  expect(await completed('holdfast show so', ['some:key', 'other'])).toEqual(['some:key'])
  expect(await completed('holdfast show some:k', ['some:key', 'some:kid', 'some:one'])).toEqual(['key', 'kid'])
  expect(await completed('holdfast run --', ['--key'])).not.toContain('--key')
})

test('completion scripts: keys of others are never executed, nor offered where a shell would act on them', async () => {
  const bait = world.path('bait')
  const evil = [
    `$(touch\${IFS}${bait})`,
    `\`touch\${IFS}${bait}\``,
    `a;touch\${IFS}${bait}`,
    '*',
    '~root',
    '--url=x',
    "a'b",
    'a"b',
    'a\\b',
  ]
  expect(await completed('holdfast show ', [...evil, 'plain/key.1'])).toEqual(['plain/key.1'])
  expect(existsSync(bait)).toBe(false)
  for (const shell of ['zsh', 'fish']) {
    const { stdout: script } = await world.run('completion', shell)
    // The same list of plain keys; both shells quote what they insert.
    expect(script).toContain('A-Za-z0-9_.')
  }
})

test('what a terminal would obey is shown, not sent: control characters, and those that turn the direction of text', () => {
  expect(printable('a\u001b[2Jb\u202ec\u2066d\u{e0041}')).toBe('a\\u{001b}[2Jb\\u{202e}c\\u{2066}d\\u{e0041}')
  expect(printable('plain, ümlaut, 鍵')).toBe('plain, ümlaut, 鍵')
})

test.each(['zsh', 'fish'])('completion scripts: %s takes it', async (shell) => {
  const { exit, stdout: script } = await world.run('completion', shell)
  expect(exit).toBe(0)
  for (const name of Object.keys(COMMANDS)) expect(script).toContain(name)
})

async function checkSyntax(shell: string, script: string): Promise<number | null> {
  return (await world.spawn(shell, ['-n', world.write(`completion.${shell}`, script)]).ended).exit
}
