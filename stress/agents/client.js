'use strict';
// A client of a run, in Node. It acquires the lock again and again, and records what it sees.
//
// Its task, its reports and its journal are those of the clients in Go: see message.go and stay.go in stress/internal/load, and journal.go
// in stress/internal/evidence.

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');

const { connect, WaitLimit, LockError, Lost } = require('../../clients/node/tierlock');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// now returns the time of stress/internal/clock: libuv reads CLOCK_MONOTONIC. The number is exact if the machine has run for less than 104
// days. The client of the lock measures its validity on another clock, /proc/uptime.
const now = () => Number(process.hrtime.bigint());

// A connection to the fence, which speaks JSON-RPC.
class Fence {
  constructor(directory) {
    this.socket = net.connect(path.join(directory, 'fence'));
    this.lines = readline.createInterface({ input: this.socket });
  }

  ask(method, access = {}) {
    return new Promise((resolve, reject) => {
      this.lines.once('line', (line) => {
        const { result, error } = JSON.parse(line);
        if (error) reject(new Error(error));
        else resolve(result);
      });
      this.socket.write(encode({ id: 0, method: `Fence.${method}`, params: [access] }));
    });
  }
}

// encode writes a token, which is a decimal string here, as the number that Go expects.
const encode = (value) => JSON.stringify(value).replace(/"Token":"(\d+)"/, '"Token":$1');

class Client {
  constructor(task) {
    this.task = task;
    this.lock = connect(task.Servers[0].replace(/^unix:/, '')).mutex(task.LockPaths[0], { wait: 5000 });
    this.fence = new Fence(task.Dir);
    this.journal = fs.openSync(path.join(task.Dir, `journal-${task.Process}`), 'a', 0o600);
    this.linger = path.join(task.Dir, `linger-${task.Process}`); // while it exists, the section goes on until a loss
    this.deaf = task.Lock === 'deaf'; // for a test of the judge: the client ignores that its hold has ended
    this.errors = {};
    this.last = 0;
    this.stopped = false;
  }

  async work() {
    while (!this.stopped) {
      try {
        await this.turn();
      } catch (err) {
        if (!(err instanceof LockError)) throw err;
        if (err instanceof WaitLimit) continue;
        this.errors[err.name] = (this.errors[err.name] || 0) + 1;
        await sleep(10);
      }
    }
  }

  async turn() {
    const asked = now();
    this.hold = await this.lock.acquire();
    this.seen = {
      Process: this.task.Process, Agent: this.task.Agent, ID: ++this.last, Path: 0, Weight: 1,
      Token: this.hold.token, Asked: asked, Got: now(),
    };
    this.look();
    this.record();
    await this.visit();
    await this.release();
    this.record();
  }

  record() { fs.writeSync(this.journal, `${encode(this.seen)}\n`); }

  // look checks whether the lock is still held, and records the answer. The time is read first: the process may be paused in between.
  look() {
    const at = now();
    try {
      this.hold.check();
    } catch (err) {
      if (!(err instanceof Lost)) throw err;
      if (!this.deaf) {
        this.seen.Lost = true;
        return false;
      }
    }
    this.seen.Valid = at;
    return true;
  }

  // visit is the critical section, which goes on after a loss: the fence has to refuse the write.
  async visit() {
    const begin = now();
    if ((await this.fence.ask('Enter', { Process: this.task.Process })).Overlap) this.seen.Met = { From: begin, Until: now() };
    await this.write();
    await this.fence.ask('Leave');
    this.seen.Left = now();
  }

  async write() {
    const access = { Token: this.hold.token, Process: this.task.Process, Agent: this.task.Agent };
    const { Refused, Fenced, Unfenced } = await this.fence.ask('Read', access);
    if (Refused) return this.refused();
    if (this.task.LongEvery && Math.random() < 1 / this.task.LongEvery) {
      this.seen.Long = true;
      await sleep(this.task.Long / 1e6);
    } else {
      await sleep(Math.random() * 2 * this.task.Section / 1e6);
    }
    while (fs.existsSync(this.linger) && this.look()) await sleep(1);
    if (Math.random() < 0.5 && !this.look()) return; // otherwise the client writes without a check
    this.record();
    if ((await this.fence.ask('Write', { ...access, Fenced, Unfenced })).Refused) this.refused();
  }

  // refused records that a higher token was used. Therefore the hold must have ended before, which the client has to see.
  refused() {
    this.seen.Refused = true;
    this.seen.Blind = this.look();
  }

  async release() {
    const called = now();
    let valid = true;
    try {
      await this.hold.release({ unsettled: Math.random() < 0.125 });
      valid = !this.seen.Lost;
      if (!valid) this.seen.Blind = true; // a loss is final, which release has to report
    } catch (err) {
      if (!(err instanceof LockError)) throw err;
      this.seen.Lost = !this.deaf;
      valid = false;
    }
    this.seen.Over = now();
    if (valid || this.deaf) this.seen.Valid = called;
  }
}

const say = (report) => fs.writeSync(1, `${JSON.stringify(report)}\n`);

async function main() {
  const orders = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const client = new Client(JSON.parse((await orders.next()).value));
  say({ Ready: true });
  await orders.next();
  const dismissed = (async () => {
    while (!(await orders.next()).done) client.stopped = true; // an order to stop
    client.stopped = true;
  })();
  await client.work();
  say({ Tally: { Errors: client.errors } });
  await dismissed;
  process.exit();
}

main();
