"""Tests of tierlock.py with a real agent, whose socket is in TIERLOCK_AGENT and whose lease is TIERLOCK_LEASE seconds. The tests start
TIERLOCK_AGENT_PROGRAM as further agents, which they kill and stop."""

import concurrent.futures
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import tierlock

SOCKET, LEASE = os.environ["TIERLOCK_AGENT"], float(os.environ["TIERLOCK_LEASE"])


class Process:
    """A process that prints lines: a function of this file with arguments, or an agent."""

    def __init__(self, *command, **variables):
        self.child = subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        return self.child.stdout.readline().strip()

    def stop(self):
        self.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED)

    def end(self):
        self.child.kill()
        self.child.communicate()


def holding(path):
    """Acquires, prints the token, and works until the hold is lost."""
    hold = tierlock.connect(SOCKET).mutex(path).acquire()
    print(hold.token, flush=True)
    try:
        while True:
            hold.check()
            time.sleep(0.01)
    except tierlock.Lost:
        print("lost", flush=True)


def counting(path, file, rounds):
    """Adds to a number in a file, under the lock. A file lock that is not free at once means that another process is inside."""
    locks = tierlock.connect(SOCKET)
    for _ in range(int(rounds)):
        with locks.mutex(path) as hold, open(file, "r+", encoding="ascii") as count:
            fcntl.flock(count, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hold.check()
            number = int(count.read() or 0)
            count.seek(0)
            count.write(str(number + 1))
    print("done", flush=True)


def distracted(path, seconds):
    """Acquires with a main thread that handles a signal meanwhile, stops itself at once, and prints whether it has the lock afterwards."""
    def handle(*_):
        print("distracted", flush=True)
        time.sleep(float(seconds))

    signal.signal(signal.SIGALRM, handle)
    print("waits", flush=True)
    hold = tierlock.connect(SOCKET).mutex(path).acquire()
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        hold.check()
        print("valid", flush=True)
    except tierlock.Lost:
        print("lost", flush=True)


class Proxy:
    """A socket that leads to the agent, and passes nothing on while hangs is true."""

    def __enter__(self):
        self.folder, self.hangs = tempfile.TemporaryDirectory(), False
        self.path = self.folder.name + "/sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.folder.cleanup()

    def accept(self):
        while True:
            client, agent = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
            agent.connect(SOCKET)
            for source, target in ((client, agent), (agent, client)):
                threading.Thread(target=self.copy, args=(source, target), daemon=True).start()

    def copy(self, source, target):
        while data := source.recv(65536):
            if not self.hangs:
                target.sendall(data)
        if not self.hangs:
            target.close()


class Locking(unittest.TestCase):
    def setUp(self):
        self.locks, self.path = tierlock.connect(SOCKET), "/python/" + self.id()

    def process(self, function, *arguments):
        process = Process(sys.executable, __file__, function, *map(str, arguments))
        self.addCleanup(process.end)
        return process

    def agent(self, path, lease):
        agent = Process(os.environ["TIERLOCK_AGENT_PROGRAM"], "-test.run=^TestClients$", TIERLOCK_SERVE=path, TIERLOCK_LEASE=str(lease))
        self.addCleanup(agent.end)
        self.assertEqual(agent.line(), "serves")
        return agent

    def test_one_process_is_inside_at_a_time(self):
        with tempfile.NamedTemporaryFile() as file:
            processes = [self.process("counting", self.path, file.name, 30) for _ in range(3)]
            self.assertEqual([process.line() for process in processes], ["done"] * 3)
            self.assertEqual(file.read(), b"90")

    def test_killed_holder_loses_the_lock_at_once(self):
        holder = self.process("holding", self.path)
        before = int(holder.line())
        holder.child.send_signal(signal.SIGKILL)
        with self.locks.mutex(self.path, wait=LEASE * 0.8) as hold:  # without the end of the connection, it would take a whole lease
            self.assertGreater(hold.token, before)

    def test_stopped_holder_loses_the_lock_and_notices(self):
        holder = self.process("holding", self.path)
        before = int(holder.line())
        holder.stop()
        with self.locks.mutex(self.path) as hold:
            self.assertGreater(hold.token, before)
            holder.child.send_signal(signal.SIGCONT)
            self.assertEqual(holder.line(), "lost")

    def test_renewals_keep_many_holds_longer_than_a_lease(self):
        paths = [f"{self.path}/{number}" for number in range(200)]
        holds = [self.locks.mutex(path).acquire() for path in paths]
        time.sleep(1.5 * LEASE)
        for hold, path in zip(holds, paths):
            hold.check()
            self.assertRaises(tierlock.Locked, self.locks.mutex(path, wait=0).acquire)
            hold.release()

    def test_waits_longer_than_a_lease(self):
        holder = self.locks.mutex(self.path).acquire()
        threading.Timer(1.5 * LEASE, holder.release).start()
        with self.locks.mutex(self.path) as hold:
            hold.check()

    def test_lock_that_was_granted_long_ago_is_renewed_before_it_is_used(self):
        """The main thread handles a signal while it gets the lock. Then the process stops, until another process has the lock, or could."""
        holder = self.locks.mutex(self.path).acquire()
        waiter = self.process("distracted", self.path, 0.8 * LEASE)
        self.assertEqual(waiter.line(), "waits")
        time.sleep(0.5)
        waiter.child.send_signal(signal.SIGALRM)
        self.assertEqual(waiter.line(), "distracted")
        holder.release()
        os.waitid(os.P_PID, waiter.child.pid, os.WSTOPPED)
        try:
            self.locks.mutex(self.path, wait=0.5 * LEASE).acquire().release()
            taken = "lost"
        except tierlock.WaitLimit:
            taken = "valid"
        waiter.child.send_signal(signal.SIGCONT)
        self.assertIn(waiter.line(), (taken, "lost"))

    def test_killed_agent_ends_its_holds_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            agent = self.agent(folder + "/sock", 60)
            locks = tierlock.connect(folder + "/sock")
            with self.assertRaisesRegex(tierlock.Lost, "connection"), locks.mutex(self.path) as hold:  # and not after 40 s, by the clock
                locks.load(self.path)  # leaves an idle connection
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    waiter = pool.submit(locks.mutex(self.path).acquire)
                    agent.end()
                    self.assertRaises(tierlock.Unavailable, waiter.result)
                hold.lost.wait()
                self.assertEqual(hold.remaining(), 0)
                self.assertRaises(tierlock.Lost, hold.save, b"late")
            self.assertRaises(tierlock.Unavailable, tierlock.connect(folder + "/sock").mutex(self.path).acquire)
            self.agent(folder + "/sock", 60)
            with locks.mutex(self.path):
                self.assertRaises(tierlock.Lost, hold.check)

    def test_stopped_agent_ends_a_hold_by_the_clock_for_good(self):
        with tempfile.TemporaryDirectory() as folder:
            agent = self.agent(folder + "/sock", LEASE)
            locks = tierlock.connect(folder + "/sock")
            hold = locks.mutex(self.path).acquire()
            agent.stop()
            end = tierlock.clock() + 2 / 3 * LEASE  # no answer comes to requests from now on
            while True:
                now = tierlock.clock()
                if not hold.remaining():
                    break
                self.assertLess(now, end)
                time.sleep(0.01)
            self.assertTrue(hold.lost.is_set())
            agent.child.send_signal(signal.SIGCONT)
            with locks.mutex(self.path) as later:
                self.assertGreater(later.token, hold.token)
                self.assertRaises(tierlock.Lost, hold.check)
                self.assertRaises(tierlock.Lost, hold.release)

    def test_hold_ends_by_the_clock_if_the_agent_hangs(self):
        with Proxy() as proxy:
            hold = tierlock.connect(proxy.path).mutex(self.path).acquire()
            proxy.hangs = True
            self.assertTrue(hold.lost.wait(LEASE))
            self.assertRaises(tierlock.Lost, hold.release)

    def test_wait_has_a_limit_also_if_the_agent_hangs(self):
        with Proxy() as proxy, unittest.mock.patch("tierlock.PATIENCE", 0.2):
            proxy.hangs = True
            self.assertRaises(tierlock.Unavailable, tierlock.connect(proxy.path).mutex(self.path, wait=0.1).acquire)

    def test_child_cannot_use_the_hold_of_its_parent(self):
        with self.locks.mutex(self.path) as hold:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for use in (hold.check, hold.release, hold.downgrade, lambda: hold.save(b"")):
                        self.assertRaises(tierlock.Forbidden, use)
                    self.assertTrue(hold.lost.is_set())
                    with self.assertRaises(tierlock.Forbidden):
                        self.locks.ask("POST", "release", "id=" + hold.id)  # the agent refuses it, too
                    self.assertRaises(tierlock.Locked, self.locks.mutex(self.path, wait=0).acquire)
                    self.locks.mutex(self.path + "-child").acquire()
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            hold.check()  # the child has not disturbed the connections of its parent

    def test_refusals(self):
        with self.locks.mutex(self.path):
            self.assertRaises(tierlock.Locked, self.locks.mutex(self.path, wait=0).acquire)
            self.assertRaises(tierlock.WaitLimit, self.locks.mutex(self.path, wait=0.05).acquire)
            self.assertRaises(tierlock.LockError, self.locks.semaphore(self.path, 5, 3).acquire)
        self.assertRaises(tierlock.Unavailable, tierlock.connect(SOCKET + ".none").mutex(self.path).acquire)

    def test_owner_after_an_exception_has_a_higher_token(self):
        with self.assertRaises(KeyError), self.locks.mutex(self.path) as hold:
            raise KeyError
        with self.locks.mutex(self.path) as later:
            self.assertGreater(later.token, hold.token)
        self.assertRaises(tierlock.Lost, later.check)
        self.assertRaises(tierlock.Lost, later.release)

    def test_value_beside_the_lock(self):
        self.assertIsNone(self.locks.load(self.path))
        with self.locks.mutex(self.path) as hold:
            hold.save(b"a value")
            self.assertEqual(self.locks.load(self.path), (b"a value", hold.token))
            hold.forget()
        self.assertIsNone(self.locks.load(self.path))
        self.assertRaises(tierlock.Lost, hold.save, b"late")

    def test_readers_permits_and_several_paths(self):
        with self.locks.writer(self.path) as hold:
            self.assertRaises(tierlock.WaitLimit, self.locks.reader(self.path, wait=0.05).acquire)
            hold.downgrade()
            with self.locks.reader(self.path):
                pass
        with self.locks.semaphore(self.path, 2, 3):
            self.assertRaises(tierlock.WaitLimit, self.locks.semaphore(self.path, 2, 3, wait=0.05).acquire)
        with self.locks.mutex(self.path + "-a", self.path + "-b") as hold:
            self.assertEqual(sorted(hold.tokens), [self.path + "-a", self.path + "-b"])

    def test_holder_learns_that_another_client_waits(self):
        with self.locks.mutex(self.path, listen="contended") as hold:
            self.assertFalse(hold.contended.is_set())
            waiter = threading.Thread(target=lambda: self.locks.mutex(self.path).acquire().release())
            waiter.start()
            hold.contended.wait()
        waiter.join()

    def test_holder_learns_of_a_request_to_release(self):
        with self.locks.mutex(self.path, listen="revoke") as hold:
            self.assertFalse(hold.revoke_requested.is_set())
            self.locks.ask("POST", "revoke", "path=" + self.path)
            hold.revoke_requested.wait()
            hold.check()

    def test_threads_exclude_each_other(self):
        lock, inside = self.locks.mutex(self.path), []

        def work(number):
            for _ in range(10):
                with lock as hold:
                    inside.append(number)
                    time.sleep(0.001)  # other threads run
                    self.assertEqual(inside.pop(), number)
                    self.assertEqual(inside, [])
                    hold.check()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))

    def test_threads_can_use_one_lock_object(self):
        lock, entered, left = self.locks.reader(self.path), threading.Event(), threading.Event()

        def work():
            with lock as hold:
                entered.set()
                left.wait()
                hold.check()  # the other thread has released its own hold

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with lock:
                later = pool.submit(work)
                entered.wait()
            left.set()
            later.result()

    def test_connection_of_a_released_hold_can_serve_another_hold_at_once(self):
        first, answer, later = self.locks.mutex(self.path).acquire(), self.locks.answer, []

        def slow(conn):  # another thread acquires before the first one goes on
            said = answer(conn)
            if conn is first.conn:
                while not later or later[-1].conn is not conn:
                    later.append(pool.submit(self.locks.mutex(f"{self.path}/{len(later)}").acquire).result())
            return said

        with concurrent.futures.ThreadPoolExecutor(1) as pool, unittest.mock.patch.object(self.locks, "answer", slow):
            first.release()
        later[-1].conn.sock.getpeername()  # it is open
        for hold in later:
            hold.release()

    def test_connection_that_the_agent_closes_is_not_used_again(self):
        conn = tierlock.Connection()
        conn.status, conn.text, conn.headers = 200, b"", {"connection": "close"}
        self.locks.answer(conn)
        self.assertEqual(self.locks.idle, [])

    def test_interrupted_acquire_leaves_nothing(self):
        with self.locks.mutex(self.path + "-other") as other:
            def interrupted(*arguments):
                register(*arguments)
                raise KeyboardInterrupt

            register = self.locks.selector.register
            with unittest.mock.patch.object(self.locks.selector, "register", interrupted):
                self.assertRaises(KeyboardInterrupt, self.locks.mutex(self.path).acquire)
            self.assertEqual(self.locks.holds, {other})
            self.assertEqual(len(self.locks.selector.get_map()), 1)
            with self.locks.mutex(self.path):
                pass

    def test_interrupted_release_ends_the_hold(self):
        lock = self.locks.mutex(self.path)
        hold = lock.acquire()
        with unittest.mock.patch.object(hold, "check", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, hold.release)
        self.assertTrue(hold.lost.is_set())
        self.assertEqual(self.locks.holds, set())
        with lock:
            pass

    def test_another_thread_can_leave_a_with_statement(self):
        lock = self.locks.mutex(self.path)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            hold = pool.submit(lock.__enter__).result()
        lock.__exit__(None, None, None)
        self.assertRaisesRegex(tierlock.Lost, "released", hold.check)

    def test_release_that_cannot_connect_raises_lost(self):
        hold = self.locks.mutex(self.path).acquire()
        with unittest.mock.patch.object(self.locks, "address", SOCKET + ".none"):
            self.locks.idle.clear()
            self.assertRaises(tierlock.Lost, hold.release)

    def test_loss_without_a_cause_is_a_loss(self):
        hold = self.locks.mutex(self.path).acquire()
        hold.lose("")
        self.assertRaises(tierlock.Lost, hold.check)

    def test_wait_is_a_number_of_seconds(self):
        for wait in (-1, float("nan"), float("inf")):
            self.assertRaises(ValueError, self.locks.mutex, self.path, wait=wait)
        with self.locks.mutex(self.path):
            self.assertRaises(tierlock.WaitLimit, self.locks.mutex(self.path, wait=1e-9).acquire)
        with self.locks.mutex(self.path, wait=1e9):
            pass

    def test_background_thread_ends_after_the_last_hold(self):
        before = set(threading.enumerate())
        for _ in range(2):
            with self.locks.mutex(self.path) as hold:
                threads = set(threading.enumerate()) - before
                self.assertEqual(len(threads), 1)
                hold.check()
            threads.pop().join()

    def test_holds_are_lost_if_the_background_thread_fails(self):
        patch = unittest.mock.patch
        with patch.object(self.locks, "renew", side_effect=MemoryError), patch("threading.excepthook") as failed:
            hold = self.locks.mutex(self.path).acquire()
            hold.lost.wait()
            self.assertRaisesRegex(tierlock.Lost, "failed", hold.check)
            while not failed.called:
                time.sleep(0.01)
        with self.locks.mutex(self.path) as later:
            until = later.until
            while later.until == until:  # a new thread renews
                later.check()
                time.sleep(0.01)

    def test_unsettled_release_gives_the_next_client_a_higher_token(self):
        def difference(unsettled):
            holder = self.locks.mutex(self.path, listen="contended").acquire()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waiter = pool.submit(self.locks.mutex(self.path).acquire)
                holder.contended.wait()
                holder.release(unsettled)
                waiter.result().release()
            return waiter.result().token - holder.token

        for _ in range(5):
            self.assertGreater(difference(unsettled=True), 0)
        # A clean release hands the same token to a client that waits. A waiter that comes too late gets a new one from the store.
        self.assertTrue(any(difference(unsettled=False) == 0 for _ in range(20)))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("holding", "counting", "distracted"):
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        unittest.main()
