/** Returns the locks of the agent at a Unix socket. Sends nothing: the first request connects. */
export function connect(socketPath: string): Locks;

export interface Options {
  /** The limit of the wait in milliseconds. 0 does not wait. Without it there is no limit. */
  wait?: number;
  /** The events that the hold reports. */
  listen?: 'contended' | 'revoke' | 'contended,revoke' | 'revoke,contended';
  /** A text of up to 256 bytes that operators see. */
  label?: string;
}

export interface Locks {
  /** The mutex at a path; several paths in an array are acquired all or none. */
  mutex(paths: string | string[], options?: Options): Lock;
  /** The reading side of the reader/writer lock at a path. */
  reader(paths: string | string[], options?: Options): Lock;
  /** The writing side of the reader/writer lock at a path. */
  writer(paths: string | string[], options?: Options): Lock;
  /** Some of the permits of the semaphore at a path. */
  semaphore(path: string, permits: number, of: number, options?: Options): Lock;
  /** Resolves to the value beside the lock, with the token of the hold that saved it. Resolves to null if no value was saved. */
  load(path: string): Promise<{ data: Buffer; token: string } | null>;
}

/** Something that can be acquired, any number of times. */
export interface Lock {
  /** Resolves to a Hold once the lock is acquired. Rejects with Locked, WaitLimit, Lost, Forbidden, Unavailable or LockError. An abort of
   * signal ends the wait, and acquire rejects with its reason. It does not end the hold. */
  acquire(options?: { signal?: AbortSignal }): Promise<Hold>;
  /** Acquires, calls f with the Hold, and releases. If f fails, the release is unsettled, and run rejects with the error of f. */
  run<T>(f: (hold: Hold) => T | Promise<T>): Promise<T>;
}

/** A lock that is held. */
export interface Hold {
  /** The fencing token, a decimal string that can exceed 2^53. Compare tokens with BigInt. With several paths it is undefined. */
  readonly token: string;
  /** With several paths, the token of each path. */
  readonly tokens?: Record<string, string>;
  /** Aborts when the hold is lost; its reason is the Lost. */
  readonly signal: AbortSignal;
  /** Resolves once another client waits for the lock, if options.listen has 'contended'. */
  readonly contended: Promise<void>;
  /** Resolves once an operator asks for the lock, if options.listen has 'revoke'. */
  readonly revokeRequested: Promise<void>;
  /** For how many milliseconds the hold is valid if it is not renewed again; 0 if it has ended. */
  remaining(): number;
  /** Throws Lost unless the hold is valid now. Sends nothing. */
  check(): void;
  /** Saves up to 16 KiB beside the lock. Rejects with Lost, or with Ambiguous if the outcome is unknown. */
  save(data: string | Uint8Array): Promise<void>;
  /** Removes the value beside the lock. Rejects like save. */
  forget(): Promise<void>;
  /** Makes a writer a reader. */
  downgrade(): Promise<void>;
  /** Releases the lock. With unsettled, for a write that may still be under way, the next owner has a higher token. Rejects with Lost if
   * the lock was lost before, or the agent does not confirm the release. After any result the hold has ended. */
  release(options?: { unsettled?: boolean }): Promise<void>;
}

/** The base of all errors. */
export class LockError extends Error {
  /** The code of the agent, or '' if the agent did not answer. */
  readonly code: string;
}
/** wait is 0, and the lock is taken. */
export class Locked extends LockError {}
/** The lock was not free within the time of wait. */
export class WaitLimit extends LockError {}
/** The hold has ended. Another client may have the lock. */
export class Lost extends LockError {}
/** The allow file of the agent does not permit it, or the hold belongs to another process. */
export class Forbidden extends LockError {}
/** The agent or the store cannot be reached, or refuses requests for now. */
export class Unavailable extends LockError {}
/** A save may have taken effect, or may yet take effect while the hold lasts. */
export class Ambiguous extends LockError {}
