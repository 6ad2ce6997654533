'use strict';
// Tests of tierlock.js with a real agent, whose socket is in TIERLOCK_AGENT and whose lease is TIERLOCK_LEASE seconds.

const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const { test } = require('node:test');

const { connect, Locked, WaitLimit, Lost, LockError, Unavailable } = require('./tierlock');

const locks = connect(process.env.TIERLOCK_AGENT);
const lease = Number(process.env.TIERLOCK_LEASE) * 1000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The functions of workers run in processes of their own.
const workers = {
  // Acquires, prints the token, and works until the hold is lost.
  async holding(at) {
    const hold = await locks.mutex(at).acquire();
    console.log(hold.token);
    try {
      for (;;) {
        hold.check();
        await sleep(10);
      }
    } catch (err) {
      console.log(err instanceof Lost && hold.signal.aborted ? 'lost' : err);
    }
  },
  // Adds to a number in a file, under the lock. A file that is there already means that another process is inside.
  async counting(at, file, rounds) {
    for (let i = 0; i < Number(rounds); i++) {
      await locks.mutex(at).run(async (hold) => {
        fs.closeSync(fs.openSync(file + '.inside', 'wx'));
        hold.check();
        const number = Number(fs.readFileSync(file, 'ascii'));
        await sleep(1);
        fs.writeFileSync(file, String(number + 1));
        fs.unlinkSync(file + '.inside');
      });
    }
    console.log('done');
  },
};

function start(t, ...args) {
  const child = spawn(process.execPath, [__filename, ...args.map(String)], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return { child, line: async () => (await lines.next()).value };
}

// proxy returns a socket that leads to the agent. After hang() it passes nothing on.
async function proxy(t) {
  const at = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tierlock-')), 'sock');
  const sockets = [];
  let hangs = false;
  const server = net.createServer((client) => {
    const agent = net.connect(process.env.TIERLOCK_AGENT);
    sockets.push(client, agent);
    for (const [from, to] of [[client, agent], [agent, client]]) {
      from.on('data', (data) => { if (!hangs) to.write(data); });
      from.on('close', () => { if (!hangs) to.destroy(); });
      from.on('error', () => {});
    }
  });
  await new Promise((resolve) => { server.listen(at, resolve); });
  t.after(() => {
    server.close();
    for (const one of sockets) one.destroy();
  });
  return { at, hang() { hangs = true; } };
}

function tests() {
  test('a hold ends by the clock if the agent hangs', async (t) => {
    const { at, hang } = await proxy(t);
    const hold = await connect(at).mutex('/node/hangs').acquire();
    hang();
    const began = Date.now();
    await new Promise((resolve) => { hold.signal.addEventListener('abort', resolve); });
    assert.ok(Date.now() - began < lease);
    await assert.rejects(hold.release(), Lost);
  });

  test('a wait has a limit also if the agent hangs', async (t) => {
    const { at, hang } = await proxy(t);
    hang();
    const behind = connect(at);
    behind.patience = 200;
    await assert.rejects(behind.mutex('/node/hangs', { wait: 100 }).acquire(), Unavailable);
  });

  test('one process is inside at a time', async (t) => {
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tierlock-')), 'count');
    fs.writeFileSync(file, '0');
    const all = [1, 2, 3].map(() => start(t, 'counting', '/node/one', file, 20));
    for (const one of all) assert.equal(await one.line(), 'done');
    assert.equal(fs.readFileSync(file, 'ascii'), '60');
  });

  test('killed holder loses the lock at once', async (t) => {
    const holder = start(t, 'holding', '/node/killed');
    const before = BigInt(await holder.line());
    holder.child.kill('SIGKILL');
    const wait = lease * 0.8; // without the end of the connection, it would take a whole lease
    await locks.mutex('/node/killed', { wait }).run(async (hold) => assert.ok(BigInt(hold.token) > before));
  });

  test('stopped holder loses the lock and notices', async (t) => {
    const holder = start(t, 'holding', '/node/stopped');
    const before = BigInt(await holder.line());
    holder.child.kill('SIGSTOP');
    await locks.mutex('/node/stopped').run(async (hold) => {
      assert.ok(BigInt(hold.token) > before);
      holder.child.kill('SIGCONT');
      assert.equal(await holder.line(), 'lost');
    });
  });

  test('renewals keep a hold longer than a lease', async () => {
    await locks.mutex('/node/renewed').run(async (hold) => {
      await sleep(1.5 * lease);
      hold.check();
      await assert.rejects(locks.mutex('/node/renewed', { wait: 0 }).acquire(), Locked);
    });
  });

  test('refusals', async () => {
    await locks.mutex('/node/refused').run(async () => {
      await assert.rejects(locks.mutex('/node/refused', { wait: 0 }).acquire(), Locked);
      await assert.rejects(locks.mutex('/node/refused', { wait: 50 }).acquire(), WaitLimit);
      await assert.rejects(locks.semaphore('/node/refused', 5, 3).acquire(), LockError);
    });
    await assert.rejects(connect(process.env.TIERLOCK_AGENT + '.none').mutex('/node/refused').acquire(), Unavailable);
    assert.equal(locks.holds.size, 0);
  });

  test('owner after an exception has a higher token', async () => {
    let token;
    await assert.rejects(locks.mutex('/node/failed').run(async (hold) => {
      token = BigInt(hold.token);
      throw new TypeError('an error of the function');
    }), TypeError);
    const later = await locks.mutex('/node/failed').acquire();
    assert.ok(BigInt(later.token) > token);
    await later.release();
    assert.throws(() => later.check(), Lost);
    await assert.rejects(later.release(), Lost);
  });

  test('value beside the lock', async () => {
    assert.equal(await locks.load('/node/value'), null);
    await locks.mutex('/node/value').run(async (hold) => {
      await hold.save('a value');
      const { data, token } = await locks.load('/node/value');
      assert.deepEqual([String(data), token], ['a value', hold.token]);
      await hold.forget();
    });
    assert.equal(await locks.load('/node/value'), null);
  });

  test('readers, permits and several paths', async () => {
    await locks.writer('/node/rw').run(async (hold) => {
      await assert.rejects(locks.reader('/node/rw', { wait: 50 }).acquire(), WaitLimit);
      await hold.downgrade();
      await locks.reader('/node/rw').run(async () => {});
    });
    await locks.semaphore('/node/permits', 2, 3).run(async () => {
      await assert.rejects(locks.semaphore('/node/permits', 2, 3, { wait: 50 }).acquire(), WaitLimit);
    });
    await locks.mutex(['/node/a', '/node/b']).run(async (hold) => assert.deepEqual(Object.keys(hold.tokens).sort(), ['/node/a', '/node/b']));
  });

  test('holder learns that another client waits', async () => {
    const hold = await locks.mutex('/node/contended', { listen: 'contended' }).acquire();
    const next = locks.mutex('/node/contended').acquire();
    await hold.contended;
    await hold.release();
    await (await next).release();
  });
}

const worker = workers[process.argv[2]];
if (worker) worker(...process.argv.slice(3));
else tests();
