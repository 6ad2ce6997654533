'use strict';
// A lock for programs on many hosts, through the tierlock agent of this host.
//
//   const { connect } = require('./tierlock');
//   const locks = connect('/run/tierlock.sock');
//   await locks.mutex('/jobs/report', { wait: '10s' }).run(async (hold) => {
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

// The locks of an agent. Options of a lock: wait is a limit such as '10s' ('0' does not wait; without it there is no limit), listen is
// 'contended', 'revoke', or both with a comma, and label is a text that operators see.
class Locks {
  constructor(socketPath) {
    this.socketPath = socketPath;
    this.agent = new http.Agent({ keepAlive: true });
    this.patience = PATIENCE;
    this.holds = new Set();
    this.users = 0; // holds and waits
    this.every = 1000; // the milliseconds between two renewals
    this.timer = null; // renews while there is a hold or a wait
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

  // request opens a request. answered is called with the response, and failed with an error.
  request(method, what, query, agent, answered, failed) {
    const path = `/v1/${what}?${new URLSearchParams(query)}`;
    const r = http.request({ socketPath: this.socketPath, method, path, agent }, answered);
    r.on('error', (err) => failed(new Unavailable(`the agent at ${this.socketPath}: ${err.message}`)));
    return r;
  }

  ask(method, what, query, body) {
    return new Promise((resolve, reject) => {
      const r = this.request(method, what, query, this.agent, (answer) => {
        const parts = [];
        answer.on('data', (part) => parts.push(part));
        answer.on('error', (err) => reject(new Unavailable(err.message)));
        answer.on('end', () => {
          const data = Buffer.concat(parts);
          if (answer.statusCode === 200) resolve({ data, headers: answer.headers });
          else reject(refusal(answer.statusCode, data));
        });
      }, reject);
      r.setTimeout(this.patience, () => r.destroy(new Error('no answer')));
      r.end(body);
    });
  }

  use(more) {
    this.users += more;
    if (this.users > 0 && !this.timer) this.timer = setTimeout(() => this.keep(0), 0);
  }

  // keep renews the holds, and ends those that are not valid any more.
  async keep(due) {
    if (this.users === 0) {
      this.timer = null;
      return;
    }
    if (this.holds.size > 0 && clock() >= due) {
      due = clock() + this.every;
      this.renew([...this.holds]).catch(() => {}); // the next try follows; without an answer the holds end by the clock
    }
    for (const hold of this.holds) if (hold.remaining() <= 0) hold.lose(new Lost('the agent has not answered in time'));
    this.timer = setTimeout(() => this.keep(due), Math.min(this.every / 4, 50));
  }

  async renew(holds) {
    for (let first = 0; first < holds.length; first += BATCH) {
      const some = holds.slice(first, first + BATCH);
      const sent = clock();
      const said = JSON.parse((await this.ask('POST', 'renew', some.map((hold) => ['id', hold.id]))).data);
      this.every = said.renew_ms;
      for (const hold of some) {
        if ((said.ended || []).includes(hold.id)) hold.lose(new Lost('the agent has ended the hold'));
        else hold.until = Math.max(hold.until, sent + said.valid_ms);
      }
    }
  }
}

// milliseconds returns the length of a duration such as '1m30s'. The agent refuses any other text.
function milliseconds(duration) {
  const units = { h: 3600e3, m: 60e3, s: 1e3, ms: 1 };
  return [...String(duration).matchAll(/([\d.]+)(ms|[smh])/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

// Something that can be acquired.
class Lock {
  constructor(locks, paths, kind, { wait, listen, label }) {
    this.locks = locks;
    this.wait = wait;
    this.query = [].concat(paths).map((path) => ['path', path]);
    for (const [name, value] of Object.entries({ ...kind, wait, listen, label })) if (value !== undefined) this.query.push([name, String(value)]);
  }

  /** Resolves to a Hold once the lock is acquired. Rejects with Locked, WaitLimit, Unavailable, Forbidden or LockError. */
  async acquire() {
    const { locks } = this;
    locks.use(1);
    let hold = null;
    try {
      const sent = clock();
      hold = await new Promise((resolve, reject) => {
        // A connection of its own: its end is the end of the hold.
        const r = locks.request('POST', 'hold', this.query, new http.Agent(), (answer) => {
          let rest = '';
          let hold = null;
          const ended = () => {
            if (hold) hold.lose(new Lost('the connection to the agent has ended'));
            else reject(answer.statusCode === 200 ? new Unavailable('the agent has ended the request') : refusal(answer.statusCode, rest));
          };
          answer.on('data', (part) => {
            rest += part;
            for (let end; answer.statusCode === 200 && (end = rest.indexOf('\n')) >= 0; rest = rest.slice(end + 1)) {
              const said = JSON.parse(rest.slice(0, end));
              if (hold) hold.hear(said);
              else {
                r.setTimeout(0);
                resolve(hold = new Hold(locks, r, said, sent));
              }
            }
          });
          answer.on('error', ended);
          answer.on('end', ended);
        }, reject);
        // An agent that hangs does not end the wait.
        if (this.wait !== undefined) r.setTimeout(milliseconds(this.wait) + locks.patience, () => r.destroy(new Error('no answer')));
        r.end();
      });
      // After a long wait the validity has to begin anew. An earlier renewal does not count: if it did not name this hold, and the agent
      // granted the lock before it arrived, then it renewed nothing.
      if (clock() - sent > locks.every) await locks.renew([hold]);
      hold.check();
      locks.holds.add(hold);
      return hold;
    } catch (err) {
      if (hold) hold.request.destroy(); // otherwise the lock would be taken until the lease is over
      locks.use(-1);
      throw err;
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

// What an acquisition holds. token is a decimal string, since it can exceed 2^53; compare tokens with BigInt. With several paths, tokens has
// one per path. signal aborts when the hold is lost. contended and revokeRequested are promises for the events that listen asks for.
class Hold {
  constructor(locks, request, said, sent) {
    this.locks = locks;
    this.request = request;
    this.id = said.id;
    this.token = said.token;
    this.tokens = said.tokens;
    this.until = sent + said.valid_ms;
    locks.every = said.renew_ms;
    this.loss = null;
    this.released = false;
    this.turn = 0; // a write that arrives late does not undo a later one
    this.control = new AbortController();
    this.signal = this.control.signal;
    this.contended = new Promise((resolve) => { this.isContended = resolve; });
    this.revokeRequested = new Promise((resolve) => { this.isRevoked = resolve; });
  }

  hear({ event, error }) {
    if (event === 'contended') this.isContended();
    if (event === 'revoke') this.isRevoked();
    if (event === 'lost') this.lose(new Lost(error));
  }

  /** For how many milliseconds the hold is valid if it is not renewed again; 0 or less if it has ended. */
  remaining() { return this.loss || this.released ? 0 : this.until - clock() - STEP; }

  /** Throws Lost unless the hold is valid now. Sends nothing. Call it before each step that must not come too late. */
  check() {
    if (this.released) throw new Lost('the hold was released');
    if (this.remaining() <= 0) this.lose(new Lost('the agent has not answered in time'));
    if (this.loss) throw this.loss;
  }

  lose(loss) {
    if (this.released || this.loss) return;
    this.loss = loss;
    this.control.abort(loss);
    this.request.destroy();
  }

  /** Saves up to 16 KiB beside the lock, while the lock is held. Rejects with Ambiguous if the outcome is unknown. */
  async save(data) { return this.write('PUT', data); }
  /** Removes the value beside the lock. */
  async forget() { return this.write('DELETE'); }

  async write(method, data) {
    this.check();
    try {
      await this.locks.ask(method, 'value', [['id', this.id], ['turn', ++this.turn]], data);
    } catch (err) {
      throw err.code === '' ? new Ambiguous(err.message) : err;
    }
  }

  /** Makes a writer a reader. */
  async downgrade() {
    this.check();
    await this.locks.ask('POST', 'downgrade', [['id', this.id]]);
  }

  /** Releases the lock. With unsettled, for a write that may still be under way, the next owner has a higher token. Rejects with Lost if the
   * lock was lost before. After any result the hold has ended. */
  async release({ unsettled = false } = {}) {
    if (this.released) throw new Lost('the hold was released before');
    const loss = this.loss || (this.remaining() <= 0 ? new Lost('the agent has not answered in time') : null);
    this.released = true;
    this.locks.holds.delete(this);
    try {
      if (loss) throw loss;
      await this.locks.ask('POST', 'release', [['id', this.id], ...(unsettled ? [['unsettled', '1']] : [])]);
    } finally {
      this.request.destroy(); // ends the hold if the agent has not answered
      this.locks.use(-1);
    }
  }
}

module.exports = { connect, LockError, Locked, WaitLimit, Lost, Forbidden, Unavailable, Ambiguous };
