/**
 * The house rules that a machine can see, as data: which files a rule is for, what it finds in a text, and an example
 * that breaks it. tidy.test.ts applies them to the repository, and shows that each rule bites.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { anchorsOf, linksOf } from '../site/markdown.ts'

export interface Rule {
  readonly name: string
  /** Paths are relative to the repository, with `/`. */
  readonly files: RegExp
  readonly except?: RegExp
  /** What is wrong, one line each. */
  find(text: string, path: string): readonly string[]
  /** A text that breaks it, and one that does not. */
  readonly bad: string
  readonly good: string
}

const CODE = /\.(?:ts|mjs)$/
const TEXT = /\.(?:ts|mjs|md|json|lua|sql|sh|yml)$|^\.ci\//
const ROOMS = /^(?:src|conformance|simulation|test)\/.*\.ts$/
/** These speak of what they forbid. */
const OURSELVES = /^test\/tidy(?:\.test)?\.ts$/
const MOST_LINES = 340
const MOST_COLUMNS = 120
const MOST_COLUMNS_OF_PROSE = 100
/** Written by scripts/lua.mjs and scripts/sql.mjs. */
const GENERATED = /^src\/.*\/(?:scripts|sources)\.ts$/

/** A comment, or the name of a test. */
const SAYS_SOMETHING = /^\s*(?:\*|\/\*|--)|\/\/|\s--\s|^\s*(?:await )?(?:test|describe)\w*\b.*\(\s*['"`]/
const VAGUE_ACTORS = /\b(?:whoever|(?:some|any|every)(?:body|one)|nobody)\b/i

export const rules: readonly Rule[] = [
  {
    name: `a file has at most ${MOST_LINES} lines of code`,
    files: ROOMS,
    find: (text) => {
      const lines = withoutComments(text)
        .split('\n')
        .filter((line) => line.trim() !== '').length
      return lines > MOST_LINES
        ? [`${lines} lines of code: a room that takes more than five minutes to read may be two rooms`]
        : []
    },
    bad: 'a()\n'.repeat(MOST_LINES + 1),
    good: `${'a()\n\n'.repeat(MOST_LINES)}// not counted\n`,
  },
  {
    name: 'a file opens with a letter to its reader',
    files: /^(?:src|conformance|simulation)\/.*\.(?:ts|lua|sql)$/,
    find: (text) => (/^(?:#!.*\n)?(?:\/\*\*|--)/.test(text) ? [] : ['no comment at the top']),
    bad: 'export const a = 1\n/** Too late. */',
    good: '#!/usr/bin/env node\n/** What this is for. */',
  },
  {
    name: `a line of code or comment has at most ${MOST_COLUMNS} columns, but for what is one long string or pattern`,
    files: /\.(?:ts|mjs|lua|sql|c)$/,
    except: GENERATED,
    find: (text, path) => longLines(path.endsWith('.sql') ? text : withoutStrings(text), MOST_COLUMNS),
    bad: `/** ${'long '.repeat(MOST_COLUMNS / 5)} */`,
    good: `const a = '${'long '.repeat(MOST_COLUMNS / 5)}'\n  /${'long'.repeat(MOST_COLUMNS / 4)}/i`,
  },
  {
    name: `prose in Markdown has at most ${MOST_COLUMNS_OF_PROSE} columns`,
    files: /\.md$/,
    find: (text) => longLines(proseOf(text), MOST_COLUMNS_OF_PROSE),
    bad: 'long '.repeat(MOST_COLUMNS_OF_PROSE / 5).concat('x'),
    good: `| ${'a table '.repeat(20)} |\n\`\`\`\n${'code '.repeat(30)}\n\`\`\`\n[link]: https://example.org/${'a'.repeat(99)}`,
  },
  {
    name: 'a comment, and the name of a test, names its actors: the holder, the waiter, this process, the server',
    files: /^(?:src|conformance|simulation|test|bench)\/.*\.(?:ts|mjs|lua|sql|c)$/,
    // This file has the words in its rule and in its examples.
    except: new RegExp(`${GENERATED.source}|^test/tidy\\.ts$`),
    find: (text) =>
      text.split('\n').flatMap((line, index) => {
        const found = SAYS_SOMETHING.test(line) && VAGUE_ACTORS.exec(line.replaceAll(/`[^`]*`/g, ''))
        return found ? [`line ${index + 1}: ${found[0]}`] : []
      }),
    bad: "test('whoever comes first holds', check)",
    good: "/** The first waiter holds. Run as the user `nobody`. */\nsay('held by nobody')",
  },
  {
    name: 'a page names its actors, too, and a lock that goes from one holder to the next is a hand-off',
    files: /^(?:docs\/.*|README|ARCHITECTURE)\.md$/,
    find: (text) =>
      proseOf(text)
        .split('\n')
        .flatMap((line, index) => {
          const found = VAGUE_ACTORS.exec(line.replaceAll(/`[^`]*`/g, '')) ?? /\bhand-?overs?\b/i.exec(line)
          return found ? [`line ${index + 1}: ${found[0]}`] : []
        }),
    bad: 'The hand-over takes a millisecond.',
    good: 'The hand-off takes a millisecond, as the user `nobody`.',
  },
  pattern('no marks are left over', CODE, /\b(?:TODO|FIXME|XXX|HACK)\b/, '// TODO: later', '// to do it later'),
  pattern('no test runs alone', CODE, /\.only\(/, "test.only('x', f)", "test('x', f)"),
  pattern(
    'a skip says why',
    /^test\/.*\.ts$/,
    /\b(?:test|it|describe|suite)\.(?:skip|todo|skipIf|runIf)\b|\.skip\(\s*\)|\.skip\((?:true|false)\)/,
    "test.skip('x', f)",
    "context.skip('needs a cluster')",
  ),
  {
    ...pattern(
      'types are not switched off',
      /\.ts$/,
      /(?::|\bas|<|,)\s*any\b(?!\w)|\bany\[\]|@ts-(?:ignore|nocheck|expect-error)|eslint-disable|oxlint-disable/,
      'const a = b as any',
      'const any = (b: unknown) => b // any number of them',
      { inComments: true },
    ),
    // There, an error of the compiler is what is tested.
    except: /^test\/types\.ts$/,
  },
  {
    ...pattern(
      'time passes only through core/clock.ts',
      /^src\/(?:core|primitives|clients|engines|transactions|guards|recipes|frameworks)\/.*\.ts$/,
      /\bDate\.now\b|\bnew Date\b(?!\([^)])|\bperformance\.now\b|\bset(?:Timeout|Interval)\(|\bprocess\.hrtime\b/,
      'const at = Date.now()',
      'const at = clock.now() // not Date.now()',
      { inComments: false },
    ),
    // The second door is a server's clock, not ours: SQLite has none, so the processes of a host share the machine's.
    except: /^src\/(?:core\/clock|clients\/sqlite\/monotonic)\.ts$/,
  },
  pattern(
    'no path of one machine, no host of a registry',
    TEXT,
    /(?<![\w.@-])\/(?:work|farm|root|tmp|home\/\w+|Users\/\w+)\/\w|\bregistry\.[a-z]+js\.(?:org|com)\b|\b(?:deb|security)\.debian\.org\b/,
    'cd /work/main',
    'cd src/core',
  ),
  pattern(
    'one word for one thing, from the glossary',
    /^(?:src|conformance|docs|README|ARCHITECTURE)\b.*\.(?:ts|md)$/,
    /\block[-_ ]?id\b|\bowner[-_ ]?id\b|\block owner\b|\bfencing_?Token\b|\blease[-_ ]?id\b|\btimeToLive\b|\bleaseDuration\b|\bttl(?:Seconds|Millis|Sec)\b|\bmutexName\b|\block name\b|\block server\b/i,
    'const lockId = owner.id',
    'const { id, holder, token, ttlMs } = entry // the fencing token',
  ),
  pattern(
    'the text speaks of the project only',
    TEXT,
    /\bAI\b|\bLLMs?\b|\bClaude\b|\bAnthropic\b|\bOpenAI\b|\bChatGPT\b|\bCopilot\b|\b[Ss]ession (?:no\.? ?)?\d+\b|\b[Ii]ssue #?\d+\b|(?<![\w&])#\d{1,3}\b/,
    'As issue 7 says',
    'A session lock is freed by the server',
  ),
  {
    name: 'links between documents lead somewhere',
    files: /\.md$/,
    find: deadLinks,
    bad: 'see [there](#there)\n\n```\n# there\n```\n',
    good: 'see [here](#here) and [the web](https://example.org/)\n\n## Here\n',
  },
  {
    name: 'a page for those who change Holdfast names files that are there',
    files: /^(?:ARCHITECTURE|CONTRIBUTING|docs\/writing-an-engine|README)\.md$/,
    find: missingFiles,
    bad: 'see `src/engines/shared/letters.ts`',
    good: 'see `engines/shared/standing-codes.ts`, `clients/<server>/errors.ts` and `src/core/`',
  },
]

/** Paths between backticks that are not there, from the root or from src/. */
function missingFiles(text: string): readonly string[] {
  return [...text.matchAll(/`([\w.-]+\/[\w./-]*(?:\/|\.[a-z]+))`/g)].flatMap(([, path = '']) =>
    [path, join('src', path)].some((each) => existsSync(each)) ? [] : [`${path} is not there`],
  )
}

interface PatternOptions {
  /** Whether comments count; they do unless said. */
  readonly inComments?: boolean
}

function pattern(
  name: string,
  files: RegExp,
  forbidden: RegExp,
  bad: string,
  good: string,
  options: PatternOptions = {},
): Rule {
  const find = (text: string): readonly string[] => {
    const lines = (options.inComments === false ? withoutComments(text) : text).split('\n')
    return lines.flatMap((line, index) => {
      const match = forbidden.exec(line)
      return match === null ? [] : [`line ${index + 1}: ${match[0].trim()}`]
    })
  }
  return { name, files, find, bad, good }
}

function longLines(text: string, most: number): readonly string[] {
  return text.split('\n').flatMap((line, index) => {
    const columns = Array.from(line).length
    return columns > most ? [`line ${index + 1}: ${columns} columns`] : []
  })
}

/** Without code, tables and lines that are one link: these cannot be wrapped. */
function proseOf(markdown: string): string {
  return markdown
    .replaceAll(/^ *```.*?^ *```/gms, (block) => block.replaceAll(/[^\n]/g, ''))
    .replaceAll(/^(?:\s*\||\s*\(?!?\[[^\]]*\](?::|\()|\s*<).*$/gm, '')
}

/** Strings, and lines that are one regular expression, become empty; lines and comments stay where they are. */
function withoutStrings(text: string): string {
  return text
    .replaceAll(TOKEN, (found) => (/^['"`]/.test(found) ? found.replaceAll(/[^\n]/g, '') : found))
    .replaceAll(/^ *\/(?![/*]).*\/[a-z]*,?$/gm, '')
}

/** A string, or a comment. */
const TOKEN = /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*.*?\*\/|\/\/[^\n]*/gs

/** Comments become blank, lines stay where they are. Strings are kept apart, since they may look like comments. */
export function withoutComments(text: string): string {
  return text.replaceAll(TOKEN, (found) => (found.startsWith('/') ? found.replaceAll(/[^\n]/g, ' ') : found))
}

function deadLinks(text: string, path: string): readonly string[] {
  return linksOf(text).flatMap((link) => {
    if (/^[a-z]+:/.test(link)) return []
    const [file = '', anchor] = link.split('#')
    const target = file === '' ? path : join(dirname(path), file)
    if (file !== '' && !existsSync(target)) return [`${link} is not there`]
    if (anchor === undefined || !target.endsWith('.md')) return []
    return anchorsOf(file === '' ? text : readFileSync(target, 'utf8')).includes(anchor)
      ? []
      : [`${link} has no such heading`]
  })
}

/** Every file of the repository that is not made or fetched. */
export function repositoryFiles(folder = '.'): readonly string[] {
  const skipped = ['node_modules', 'dist', '.git', '.cache', 'coverage']
  return readdirSync(folder, { withFileTypes: true }).flatMap((item) => {
    const path = join(folder, item.name)
    if (item.isDirectory()) return skipped.includes(item.name) ? [] : repositoryFiles(path)
    return item.isFile() ? [path] : []
  })
}

export function isFor(rule: Rule, path: string): boolean {
  return (
    rule.files.test(path) && rule.except?.test(path) !== true && !OURSELVES.test(path) && path !== 'package-lock.json'
  )
}

/** The files that the opening comment of an engine's index.ts names, and the folders of those that have one. */
export function readingOrder(text: string): readonly string[] {
  const letter = text.slice(0, text.indexOf('*/')).split(/in this order/)[1] ?? ''
  return [...letter.matchAll(/(?<![\w./-])[\w./-]+\.(?:ts|lua|sql)\b/g)].map(([path]) => path)
}

/** What is wrong with the order in which an engine's folder says to read it. `names` is what is in the folder. */
export function readingOrderProblems(text: string, names: readonly string[]): readonly string[] {
  const order = readingOrder(text)
  const first = new Set(order.map((path) => path.split('/')[0]))
  return [
    ...names.filter((name) => !first.has(name)).map((name) => `${name} is not in the order`),
    ...order
      .filter((path) => /^[\w-]+\.ts$/.test(path) && !names.includes(path))
      .map((path) => `${path} is in the order, and not there`),
  ]
}

/** The names of the classes, interfaces and types of a text, exported or not. */
export function declaredNames(text: string): readonly string[] {
  const declared = /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface|type) (\w+)/gm
  return [...withoutComments(text).matchAll(declared)].map(([, name]) => name ?? '')
}
