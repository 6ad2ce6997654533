'use strict';
// A lock for programs on many hosts, through the tierlock agent of this host.
//
//   const { connect } = require('./tierlock');
//   const locks = connect('/run/tierlock.sock');
//   await locks.mutex('/jobs/report', { wait: 10_000 }).run(async (hold) => {
//     await writeReport({ token: hold.token, signal: hold.signal });
//   });
//
// This file needs only Node 18. README.md says what is not promised.

const fs = require('node:fs');
const http = require('node:http');

const PATIENCE = 10_000; // the milliseconds in which the agent has to answer a request that does not wait for a lock
const BATCH = 50; // how many holds one request renews

// clock returns milliseconds. On Linux it counts the sleep of the machine: Node has no such clock, but /proc/uptime counts it, in steps of
// 10 ms. Elsewhere the clock stands still while the machine sleeps.
const uptime = (() => {
  try {
    return fs.openSync('/proc/uptime', 'r');
  } catch {
    return null;
  }
})();
const text = Buffer.alloc(64);
function clock() {
  if (uptime === null) return Number(process.hrtime.bigint()) / 1e6;
  return parseFloat(text.toString('latin1', 0, fs.readSync(uptime, text, 0, 64, 0))) * 1000;
}
const STEP = uptime === null ? 0 : 10;

/** The base of all errors. code is the code of the agent, or '' if the agent did not answer. */
class LockError extends Error {
  constructor(message, code = '') {
    super(message);
    this.name = this.constructor.name;
    this.code = code;
  }
}
/** wait is 0, and the lock is taken. */
class Locked extends LockError {}
/** The lock was not free within the time of wait. */
class WaitLimit extends LockError {}
/** The hold has ended. Another client may have the lock. */
class Lost extends LockError {}
/** The allow file of the agent does not permit it, or the hold belongs to another process. */
class Forbidden extends LockError {}
/** The agent or the store cannot be reached, or refuses requests for now. */
class Unavailable extends LockError {}
/** A save may have taken effect, or may yet take effect while the hold lasts. */
class Ambiguous extends LockError {}

const errors = {
  locked: Locked, wait_limit: WaitLimit, lost: Lost, unknown_id: Lost, forbidden: Forbidden, ambiguous: Ambiguous,
  unavailable: Unavailable, grace_period: Unavailable, closing: Unavailable, too_many: Unavailable,
};

function refusal(status, body) {
  let said = { code: 'failed', error: `status ${status}` };
  try {
    said = JSON.parse(body);
  } catch { /* not from an agent */ }
  return new (errors[said.code] || LockError)(said.error, said.code);
}

/** Returns the locks of the agent at a Unix socket. Sends nothing: the first request connects. */
function connect(socketPath) {
  return new Locks(socketPath);
}

// The locks of an agent. Options of a lock: wait is a limit in milliseconds (0 does not wait; without it there is no limit), listen is
// 'contended', 'revoke', or both with a comma, and label is a text that operators see.
class Locks {
  constructor(socketPath) {
    this.socketPath = socketPath;
    this.agent = new http.Agent({ keepAlive: true });
    this.patience = PATIENCE;
    this.holds = new Set();
    this.every = 1000; // the milliseconds between two renewals
    this.timer = null; // runs while there is a hold
  }

  /** The mutex at a path; several paths in an array are acquired all or none. */
  mutex(paths, options = {}) { return new Lock(this, paths, {}, options); }
  /** The reading side of the reader/writer lock at a path. */
  reader(paths, options = {}) { return new Lock(this, paths, { mode: 'read' }, options); }
  /** The writing side of the reader/writer lock at a path. */
  writer(paths, options = {}) { return new Lock(this, paths, { mode: 'write' }, options); }
  /** Some of the permits of the semaphore at a path. */
  semaphore(path, permits, of, options = {}) { return new Lock(this, path, { permits, of }, options); }

  /** Returns {data, token} of the value beside the lock, or null. Waits while the store cannot be reached. */
  async load(path) {
    try {
      const { data, headers } = await this.ask('GET', 'value', [['path', path]]);
      return { data, token: headers['tierlock-token'] };
    } catch (err) {
      if (err.code === 'no_value') return null;
      throw err;
    }
  }

  // open sends a request, and resolves to the response once its body begins. patience is a limit, unless it is undefined.
  open(method, what, query, agent, patience, body, signal) {
    return new Promise((resolve, reject) => {
      const path = `/v1/${what}?${new URLSearchParams(query)}`;
      const request = http.request({ socketPath: this.socketPath, method, path, agent, signal }, resolve);
      request.on('error', reject);
      if (patience !== undefined) request.setTimeout(patience, () => request.destroy(new Error('no answer')));
      request.end(body);
    });
  }

  // ask resolves to the body and the headers of an answer. It rejects with Unanswered if the agent may have executed the request.
  async ask(method, what, query, body, Unanswered = Unavailable) {
    try {
      return await complete(await this.open(method, what, query, this.agent, this.patience, body));
    } catch (err) {
      throw err instanceof LockError ? err : new Unanswered(`the agent at ${this.socketPath}: ${err.message}`);
    }
  }

  keep(hold) {
    this.holds.add(hold);
    if (!this.timer) this.tick(clock() + this.every);
  }

  // tick ends the holds that have expired, and renews the others if that is due. Timers of Node do not count the sleep of the machine.
  // Therefore tick looks at the clock often.
  tick(due) {
    for (const hold of this.holds) hold.remaining();
    if (clock() >= due) {
      due = clock() + this.every;
      this.renew([...this.holds]).catch(() => {}); // the next try follows; without an answer the holds end by the clock
    }
    this.timer = this.holds.size === 0 ? null : setTimeout(() => this.tick(due), Math.min(this.every / 4, 50));
  }

  // renew sends all requests at once: a slow answer to one must not make another hold late.
  async renew(holds) {
    const batches = [];
    for (let first = 0; first < holds.length; first += BATCH) batches.push(holds.slice(first, first + BATCH));
    await Promise.all(batches.map(async (batch) => {
      const sent = clock();
      const said = JSON.parse((await this.ask('POST', 'renew', batch.map((hold) => ['id', hold.id]))).data);
      this.every = said.renew_ms;
      for (const hold of batch) {
        if ((said.ended || []).includes(hold.id)) hold.lose('the agent has ended it');
        else hold.until = Math.max(hold.until, sent + said.valid_ms);
      }
    }));
  }
}

// complete reads a response to its end.
async function complete(answer) {
  const parts = [];
  for await (const part of answer) parts.push(part);
  const data = Buffer.concat(parts);
  if (answer.statusCode !== 200) throw refusal(answer.statusCode, data);
  return { data, headers: answer.headers };
}

// events yields the events of a response while they arrive.
async function* events(answer) {
  let rest = '';
  for await (const part of answer.setEncoding('utf8')) {
    const lines = (rest + part).split('\n');
    rest = lines.pop();
    yield* lines.map((line) => JSON.parse(line));
  }
}

// Something that can be acquired.
class Lock {
  constructor(locks, paths, kind, { wait, listen, label }) {
    if (wait !== undefined && !(Number.isFinite(wait) && wait >= 0)) throw new TypeError('wait is a number of milliseconds, 0 or more');
    this.locks = locks;
    this.limit = wait === undefined ? undefined : Math.min(wait + locks.patience, 2 ** 31 - 1); // Node has no longer timer
    const query = { ...kind, wait: wait === undefined ? undefined : `${BigInt(Math.ceil(wait))}ms`, listen, label };
    this.query = [...[].concat(paths).map((path) => ['path', path]), ...Object.entries(query).filter(([, value]) => value !== undefined)];
  }

  /** Resolves to a Hold once the lock is acquired. Rejects with Locked, WaitLimit, Unavailable, Forbidden or LockError. An abort of signal
   * ends the wait: acquire rejects with its reason. */
  async acquire({ signal } = {}) {
    signal?.throwIfAborted();
    const { locks } = this;
    const wait = new AbortController(); // signal has no effect on the hold
    const abort = () => wait.abort();
    signal?.addEventListener('abort', abort);
    const sent = clock();
    let answer;
    try {
      // A connection of its own: its end is the end of the hold.
      answer = await locks.open('POST', 'hold', this.query, false, this.limit, undefined, wait.signal);
      if (answer.statusCode !== 200) await complete(answer);
      answer.setTimeout(0);
      const stream = events(answer);
      const { value: said } = await stream.next();
      if (!said) throw new Error('it has ended the request');
      const hold = new Hold(locks, answer, said, sent);
      hold.follow(stream);
      // After a long wait the validity has to begin anew. An earlier renewal does not count: if it did not name this hold, and the agent
      // granted the lock before it arrived, then it renewed nothing.
      if (clock() - sent > locks.every) await locks.renew([hold]);
      signal?.throwIfAborted();
      hold.check();
      locks.keep(hold);
      return hold;
    } catch (err) {
      if (answer) answer.destroy(); // otherwise the lock would be taken until the lease is over
      signal?.throwIfAborted();
      throw err instanceof LockError ? err : new Unavailable(`the agent at ${locks.socketPath}: ${err.message}`);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Acquires, calls f with the Hold, and releases. If f fails, a write may be under way, so the next owner gets a higher token. */
  async run(f) {
    const hold = await this.acquire();
    let result;
    try {
      result = await f(hold);
    } catch (err) {
      await hold.release({ unsettled: true }).catch(() => {}); // the error of f says more
      throw err;
    }
    await hold.release();
    return result;
  }
}

// What an acquisition holds. token is a decimal string, since it can exceed 2^53: compare tokens with BigInt. With several paths, tokens
// has one per path. signal aborts when the hold is lost. contended and revokeRequested are promises for the events that listen asks for.
class Hold {
  constructor(locks, answer, said, sent) {
    this.locks = locks;
    this.answer = answer;
    this.id = said.id;
    this.token = said.token;
    this.tokens = said.tokens;
    this.until = sent + said.valid_ms;
    locks.every = said.renew_ms;
    this.ended = null; // why the hold has ended
    this.turn = 0; // a write that arrives late does not undo a later one
    this.control = new AbortController();
    this.signal = this.control.signal;
    this.contended = new Promise((resolve) => { this.isContended = resolve; });
    this.revokeRequested = new Promise((resolve) => { this.isRevoked = resolve; });
  }

  // follow handles events until the stream ends, which ends the hold.
  async follow(stream) {
    let cause = 'the connection to the agent has ended';
    try {
      for await (const { event, error } of stream) {
        if (event === 'contended') this.isContended();
        if (event === 'revoke') this.isRevoked();
        if (event === 'lost') this.lose(error);
      }
    } catch (err) {
      cause += `: ${err.message}`;
    }
    this.lose(cause);
  }

  /** For how many milliseconds the hold is valid if it is not renewed again; 0 if it has ended. */
  remaining() {
    const left = this.until - clock() - STEP;
    if (!(left > 0)) this.lose('it was not renewed in time');
    return this.ended ? 0 : left;
  }

  /** Throws Lost unless the hold is valid now. Sends nothing. Call it before each step that must not come too late. */
  check() {
    this.remaining();
    if (this.ended) throw this.ended;
  }

  end(cause) {
    this.locks.holds.delete(this);
    this.ended = new Lost(`the hold has ended: ${cause}`);
  }

  lose(cause) {
    if (this.ended) return;
    this.end(cause);
    this.control.abort(this.ended);
    this.answer.destroy();
  }

  /** Saves up to 16 KiB beside the lock, while the lock is held. Rejects with Ambiguous if the outcome is unknown. */
  async save(data) { return this.write('PUT', data); }
  /** Removes the value beside the lock. Rejects like save. */
  async forget() { return this.write('DELETE'); }

  async write(method, data) {
    this.check();
    await this.locks.ask(method, 'value', [['id', this.id], ['turn', ++this.turn]], data, Ambiguous);
  }

  /** Makes a writer a reader. */
  async downgrade() {
    this.check();
    await this.locks.ask('POST', 'downgrade', [['id', this.id]]);
  }

  /** Releases the lock. With unsettled, for a write that may still be under way, the next owner has a higher token. Rejects with Lost if
   * the lock was lost before, or the agent does not confirm the release. After any result the hold has ended. */
  async release({ unsettled = false } = {}) {
    this.check();
    this.end('it was released');
    try {
      await this.locks.ask('POST', 'release', [['id', this.id], ...(unsettled ? [['unsettled', '1']] : [])], undefined, Lost);
    } finally {
      this.answer.destroy(); // ends the hold if the agent has not answered
    }
  }
}

module.exports = { connect, LockError, Locked, WaitLimit, Lost, Forbidden, Unavailable, Ambiguous };
