'use strict';
// Tests of tierlock.js with a real agent, whose socket is in TIERLOCK_AGENT and whose lease is TIERLOCK_LEASE seconds. The tests start
// TIERLOCK_AGENT_PROGRAM as further agents, which they kill and stop.

const assert = require('node:assert');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
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

// run starts a process that prints lines. start runs a function of workers, and startAgent runs an agent.
function run(t, program, args, variables) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...variables } });
  t.after(() => child.kill('SIGKILL'));
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return { child, line: async () => (await lines.next()).value };
}

const start = (t, ...args) => run(t, process.execPath, [__filename, ...args.map(String)]);

async function startAgent(t, at, seconds) {
  const variables = { TIERLOCK_SERVE: at, TIERLOCK_LEASE: String(seconds) };
  const agent = run(t, process.env.TIERLOCK_AGENT_PROGRAM, ['-test.run=^TestClients$'], variables);
  assert.equal(await agent.line(), 'serves');
  return agent.child;
}

const newSocket = () => path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tierlock-')), 'sock');

// proxy returns a socket that leads to the agent. After hang() it passes nothing on.
async function proxy(t) {
  const at = newSocket();
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

  test('a killed agent ends its holds at once', async (t) => {
    const at = newSocket();
    const agent = await startAgent(t, at, 60);
    const behind = connect(at);
    const lost = behind.mutex('/node/loss').run(async (hold) => {
      await behind.load('/node/loss'); // leaves an idle connection
      const waiter = assert.rejects(behind.mutex('/node/loss').acquire(), Unavailable);
      agent.kill('SIGKILL');
      await waiter;
      await once(hold.signal, 'abort');
      assert.match(hold.signal.reason.message, /connection/); // and not after 40 s, by the clock
      assert.equal(hold.remaining(), 0);
      await assert.rejects(hold.save('late'), Lost);
    });
    await assert.rejects(lost, Lost);
    await assert.rejects(behind.mutex('/node/loss').acquire(), Unavailable);
    await startAgent(t, at, 60);
    await behind.mutex('/node/loss').run(async (hold) => hold.check());
  });

  // The test waits until the agent has stopped, which only Linux shows in a file.
  test('a stopped agent ends a hold by the clock, for good', { skip: process.platform !== 'linux' }, async (t) => {
    const at = newSocket();
    const agent = await startAgent(t, at, lease / 1000);
    const behind = connect(at);
    const hold = await behind.mutex('/node/stopped agent').acquire();
    agent.kill('SIGSTOP');
    while (!/\) T /.test(fs.readFileSync(`/proc/${agent.pid}/stat`, 'latin1'))) await sleep(1);
    const end = performance.now() + 2 / 3 * lease; // no answer comes to requests from now on
    for (;;) {
      const now = performance.now();
      if (hold.remaining() === 0) break;
      assert.ok(now < end);
      await sleep(10);
    }
    assert.ok(hold.signal.aborted);
    agent.kill('SIGCONT');
    await behind.mutex('/node/stopped agent').run(async (later) => {
      assert.ok(BigInt(later.token) > BigInt(hold.token));
      assert.throws(() => hold.check(), Lost);
      await assert.rejects(hold.release(), Lost);
    });
  });

  test('renewals keep many holds longer than a lease', async () => {
    const paths = Array.from({ length: 200 }, (_, number) => `/node/renewed/${number}`);
    const holds = [];
    while (holds.length < paths.length) { // not all at once, so that a slow machine can renew the first ones in time
      holds.push(...await Promise.all(paths.slice(holds.length, holds.length + 20).map((one) => locks.mutex(one).acquire())));
    }
    await sleep(1.5 * lease);
    for (const [number, hold] of holds.entries()) {
      hold.check();
      await assert.rejects(locks.mutex(paths[number], { wait: 0 }).acquire(), Locked);
      await hold.release();
    }
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

  test('an abort ends a wait, and not a hold', async () => {
    const lock = locks.mutex('/node/aborted');
    const control = new AbortController();
    const hold = await locks.mutex('/node/aborted', { listen: 'contended' }).acquire({ signal: control.signal });
    const waiter = assert.rejects(lock.acquire({ signal: control.signal }), { name: 'AbortError' });
    await hold.contended;
    control.abort();
    await waiter;
    await assert.rejects(lock.acquire({ signal: control.signal }), { name: 'AbortError' });
    hold.check();
    await hold.release();
    await lock.run(async () => {}); // the waiter has left
  });

  test('wait is a number of milliseconds', async () => {
    for (const wait of [-1, NaN, Infinity, '1']) assert.throws(() => locks.mutex('/node/wait', { wait }), TypeError);
    await locks.mutex('/node/wait').run(async () => {
      await assert.rejects(locks.mutex('/node/wait', { wait: 1e-9 }).acquire(), WaitLimit);
    });
  });

  test('a validity that is not a number has ended', async () => {
    const hold = await locks.mutex('/node/nan').acquire();
    hold.until = NaN;
    assert.equal(hold.remaining(), 0);
    assert.throws(() => hold.check(), Lost);
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
    await locks.mutex(['/node/a', '/node/b']).run(async (hold) => {
      assert.deepEqual(Object.keys(hold.tokens).sort(), ['/node/a', '/node/b']);
    });
  });

  test('holder learns that another client waits', async () => {
    const hold = await locks.mutex('/node/contended', { listen: 'contended' }).acquire();
    const next = locks.mutex('/node/contended').acquire();
    await hold.contended;
    await hold.release();
    await (await next).release();
  });

  test('holder learns of a request to release', async () => {
    await locks.mutex('/node/revoked', { listen: 'revoke' }).run(async (hold) => {
      await locks.ask('POST', 'revoke', [['path', '/node/revoked']]);
      await hold.revokeRequested;
      hold.check();
    });
  });

  test('functions of one process exclude each other', async () => {
    const lock = locks.mutex('/node/functions');
    const inside = new Set();
    const work = async (number) => {
      for (let i = 0; i < 10; i++) {
        await lock.run(async (hold) => {
          inside.add(number);
          await sleep(1); // other functions run
          assert.deepEqual([...inside], [number]);
          hold.check();
          inside.delete(number);
        });
      }
    };
    await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(work));
  });

  test('an unsettled release gives the next client a higher token', async () => {
    const difference = async (options) => {
      const holder = await locks.mutex('/node/unsettled', { listen: 'contended' }).acquire();
      const waiter = locks.mutex('/node/unsettled').acquire();
      await holder.contended;
      await holder.release(options);
      const next = await waiter;
      await next.release();
      return BigInt(next.token) - BigInt(holder.token);
    };
    for (let i = 0; i < 5; i++) assert.ok(await difference({ unsettled: true }) > 0n);
    // A clean release hands the same token to a client that waits. A waiter that comes too late gets a new one from the store.
    let tries = 0;
    while (await difference() !== 0n) assert.ok(++tries < 20);
  });

  test('the types are those of the client', async () => {
    const types = fs.readFileSync(path.join(__dirname, 'tierlock.d.ts'), 'utf8');
    const names = (text, pattern) => [...text.matchAll(pattern)].map((match) => match[1]).sort();
    assert.deepEqual(names(types, /^export (?:class|function) (\w+)/gm), Object.keys(require('./tierlock')).sort());
    // The documented methods of tierlock.js are the declared ones.
    const source = fs.readFileSync(path.join(__dirname, 'tierlock.js'), 'utf8');
    assert.deepEqual(names(types, /^ {2}(\w+)[(<]/gm), names(source, /\*\/\n {2}(?:async )?(\w+)\(/g));
    await locks.mutex('/node/types').run(async (hold) => {
      for (const property of names(types, /^ {2}readonly (\w+)/gm)) assert.ok(property in hold || property === 'code', property);
    });
  });
}

const worker = workers[process.argv[2]];
if (worker) worker(...process.argv.slice(3));
else tests();
