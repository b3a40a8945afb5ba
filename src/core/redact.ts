/**
 * Secrets, left out of what people and logs see: passwords in URLs, and in command lines. Each function takes time in
 * proportion to its text, whatever the text is: holders are names that others chose.
 */

const SECRET_NAME = /pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential/i
const ANNOUNCED_NAME = new RegExp(`^--?[\\w-]*?(?:${SECRET_NAME.source}s?)$`, 'i')
/** In the query of a URL, `key` and `url` are secrets as well: client keys, and the URL of another server. */
const SECRET_PARAMETER = new RegExp(`${SECRET_NAME.source}|key|url`, 'i')
/** Headers of HTTP whose value is a secret, though their name does not say so. */
const SECRET_HEADER = /^(?:proxy-)?authorization$|^(?:set-)?cookie$/i
/** `Authorization: Bearer x`: what comes before the secret. */
const SCHEME = /^(?:basic|bearer|digest|token|apikey|negotiate)$/i
/** No variable, option or header has a name of more characters than this. */
const LONGEST_NAME = 100

/** An option for a password that has no telling name. */
interface ShortOption {
  readonly program: RegExp
  readonly option: string
  /** Alone, it asks for the password at the terminal. */
  readonly asks: boolean
}

const SHORT_OPTIONS: readonly ShortOption[] = [
  { program: /^(?:mysql|mariadb)/, option: '-p', asks: true },
  { program: /^(?:redis|valkey)-cli$/, option: '-a', asks: false },
  { program: /^sshpass$/, option: '-p', asks: false },
]

/** The URL without its secrets, for messages, logs and JSON. */
export function redactUrl(url: string): string {
  // Not through URL: what it cannot parse (lists of hosts, a password with a slash) must not be printed whole either.
  // Everything between the user and the last @ is taken for the password.
  return url
    .replace(/^([a-z][a-z0-9+.-]*:\/\/[^:@/]*):.*@/is, '$1:***@')
    .replace(/^([^:@/]+):(?!\/).*@/s, '$1:***@')
    .replace(/([?&])([^=&#?]*)=[^&#]*/g, (whole, mark: string, name: string) =>
      SECRET_PARAMETER.test(name) ? `${mark}${name}=***` : whole,
    )
}

/** A command line without what looks like a secret: each argument, and each word inside an argument of `sh -c`. */
export function redactCommand(command: readonly string[]): string[] {
  const words = new WordRedactor()
  return command.map((argument) => {
    // `--password x y`: all of the next argument is the secret, not only its first word.
    if (words.secretFollows) return words.redact(argument)
    // `--passphrase=correct horse`: so is all that follows the name. A password in a URL may have spaces, too.
    const [, name = '', rest = argument] = /^([\w.-]*=)?(.*)$/s.exec(argument) ?? []
    if (name !== '' && isSecretName(name)) return `${name}***`
    // `-H 'Cookie: a=1; b=2'`
    const [, header] = /^([\w-]{1,100}):\s*\S/.exec(rest) ?? []
    if (header !== undefined && isSecretHeader(header)) return `${name}${header}: ***`
    // Spaces and quotes stay where they are; what is between them is a word, as in a text for `sh -c`.
    const whole = /^[a-z][a-z0-9+.-]*:\/\//i.test(rest) ? redactUrl(rest) : rest
    return `${name}${whole}`
      .split(/([\s"']+)/)
      .map((word, index) => (index % 2 === 1 || word === '' ? word : words.redact(word)))
      .join('')
  })
}

/** Reads words in order, because some of them say what the next one is. */
class WordRedactor {
  #next: 'plain' | 'secret' | 'account' | 'credentials' = 'plain'
  #previous = ''
  /** That of the program that was named last. */
  #shortOption: ShortOption | undefined

  get secretFollows(): boolean {
    return this.#next === 'secret'
  }

  redact(word: string): string {
    const [expected, previous] = [this.#next, this.#previous]
    this.#next = 'plain'
    this.#previous = word
    if (expected === 'secret') return '***'
    // `curl -u user:password`
    if (expected === 'account') return word.replace(/:.*$/s, ':***')
    // `Authorization: Bearer x`, or without the scheme.
    if (expected === 'credentials') {
      if (!SCHEME.test(word)) return '***'
      this.#next = 'secret'
      return word
    }
    // `{"password":"x"}`, whose quotes are between words.
    if (word.startsWith(':') && isSecretName(previous)) {
      if (word === ':') this.#next = 'secret'
      return word === ':' ? word : ':***'
    }
    const short = this.#shortOption
    if (short !== undefined && word.startsWith(short.option)) {
      if (word !== short.option) return `${short.option}***`
      if (!short.asks) this.#next = 'secret'
      return word
    }
    const program = word.slice(word.lastIndexOf('/') + 1)
    this.#shortOption = SHORT_OPTIONS.find((one) => one.program.test(program)) ?? short
    const equals = word.indexOf('=')
    if (equals > 0) return this.#assigned(word.slice(0, equals), word.slice(equals + 1))
    const colon = word.indexOf(':')
    if (colon > 0 && !word.startsWith('//', colon + 1) && isSecretHeader(word.slice(0, colon))) {
      if (colon + 1 < word.length) return `${word.slice(0, colon)}:***`
      this.#next = 'credentials'
      return word
    }
    if (word.startsWith('-') && announcesSecret(word)) this.#next = 'secret'
    else if (word === '-u' || word === '--user' || word === '--proxy-user') this.#next = 'account'
    return redactUrls(word)
  }

  /** `--password=x`, `PGPASSWORD=x`, `DATABASE_URL=postgres://u:p@h/d`. An empty value is in quotes: the next word. */
  #assigned(name: string, value: string): string {
    if (!isSecretName(name)) return `${name}=${redactUrls(value)}`
    if (value === '') this.#next = 'secret'
    return `${name}=${value === '' ? '' : '***'}`
  }
}

function isSecretName(name: string): boolean {
  return name.length <= LONGEST_NAME && SECRET_NAME.test(name)
}

function isSecretHeader(name: string): boolean {
  return isSecretName(name) || SECRET_HEADER.test(name)
}

/** `--password`, `-token`; not `--passes` or `--max-tokens`, whose value is a number. */
function announcesSecret(word: string): boolean {
  return word.length <= LONGEST_NAME && ANNOUNCED_NAME.test(word)
}

function redactUrls(word: string): string {
  // Neither a password nor a parameter is in it. A pattern is compiled when it is first used, and most words are plain.
  if (!word.includes(':') && !word.includes('=')) return word
  const at = word.search(/[a-z][a-z0-9+.-]{0,30}:\/\//i)
  return at < 0 ? redactUrl(word) : word.slice(0, at) + redactUrl(word.slice(at))
}
