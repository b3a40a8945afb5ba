/**
 * MySQL itself: what it wants otherwise than MariaDB. It is fetched by other-servers.ts (`mysql@sid`), and started by
 * `MariadbServer`, with the same database and users.
 */
import type { Program } from './programs.ts'

/** `mysqld  Ver 9.7.4 for Linux on x86_64`, where the other one says `mariadbd  Ver 10.11.14-MariaDB`. */
export function isMysql({ version }: Program): boolean {
  return !/mariadb/i.test(version)
}

/** A server that is not ours is taken for a MariaDB: then it is asked more. */
export function startsMysql(source: { readonly program: Program } | { readonly url: string }): boolean {
  return 'program' in source && isMysql(source.program)
}

/**
 * Beside what it has in common with MariaDB. The second protocol would need a port. Nothing waits for the disk: a
 * killed process loses nothing by that.
 */
export const mysqlOptions: readonly string[] = [
  ...['--innodb-redo-log-capacity=8M', '--innodb-flush-method=nosync', '--innodb-doublewrite=OFF'],
  ...['--innodb-buffer-pool-dump-at-shutdown=OFF', '--auto-generate-certs=OFF'],
  '--secure-file-priv=NULL',
  '--mysqlx=OFF',
]

/** Tests ask as root from a port, not from a socket. */
const USERS = `
create database holdfast;
create user app@'%' identified by 'secret';
grant all on holdfast.* to app@'%';
create user root@'%';
grant all on *.* to root@'%' with grant option;
`

/** $1 is a file for the statements, which are $2; the rest is the server. */
const INITIALIZE = `
file=$1; printf '%s' "$2" > "$file"; shift 2
exec "$@" --initialize-insecure --init-file="$file"
`

/** Arguments of `sh`: the system tables, and the users. */
export function mysqlInstallation(program: Program, folder: string, common: readonly string[]): readonly string[] {
  return ['-c', INITIALIZE, 'sh', `${folder}/users.sql`, USERS, program.path, ...common]
}
