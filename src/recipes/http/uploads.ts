/**
 * Files of a form. multer and express-fileupload put them beside the body, into `request.file` and `request.files`, and
 * they make the request what it is as much as the body does. A file that is in memory is compared by its content. One
 * that went to a disk or elsewhere cannot be: what is known of it is the same for another file of that name and size.
 */
import { createHash } from 'node:crypto'

/** What tells one uploaded file from another: the digest stands for its content. */
export type UploadedFile = readonly [field: unknown, name: unknown, type: unknown, digest: string]

/** Of all parsers, as far as it is used here. */
interface ParsedFile {
  /** The content: of multer, and of express-fileupload. */
  readonly buffer?: unknown
  readonly data?: unknown
  readonly size?: unknown
  readonly fieldname?: unknown
  readonly originalname?: unknown
  readonly name?: unknown
  readonly mimetype?: unknown
}

/** The files of a request, in the order in which they were sent. Undefined: there is one whose content is not known. */
export function filesOf(type: string | undefined, raw: unknown): readonly UploadedFile[] | undefined {
  if (type === undefined || !/^multipart\//i.test(type.trim()) || typeof raw !== 'object' || raw === null) return []
  const { file, files } = raw as { file?: unknown; files?: unknown }
  const found = [...filesIn(file, ''), ...filesIn(files, '')]
  const known = found.filter((one) => one !== undefined)
  return known.length === found.length ? known : undefined
}

/** One file, a list of them, or those of each field by its name. */
function filesIn(found: unknown, field: string): readonly (UploadedFile | undefined)[] {
  if (typeof found !== 'object' || found === null) return []
  if (Array.isArray(found)) return found.flatMap((one) => filesIn(one, field))
  const isFile = Object.values(found).some((value) => typeof value !== 'object')
  return isFile ? [fileOf(found, field)] : Object.entries(found).flatMap(([name, one]) => filesIn(one, name))
}

function fileOf(file: ParsedFile, field: string): UploadedFile | undefined {
  const bytes = file.buffer ?? file.data
  // A file on the disk has no bytes here, or none of them.
  if (!(bytes instanceof Uint8Array) || (file.size !== undefined && file.size !== bytes.length)) return undefined
  const digest = createHash('sha256').update(bytes).digest('base64url')
  return [file.fieldname ?? field, file.originalname ?? file.name, file.mimetype, digest]
}
