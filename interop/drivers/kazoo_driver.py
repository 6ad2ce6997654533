"""A kazoo lock at the command of its standard input; see driver_test.go for the orders and the answers."""

import concurrent.futures
import fcntl
import json
import os
import queue
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout


class Oracle:
    """A counter in a file that only the lock under test protects, and a POSIX lock that tells whether it does.

    POSIX locks belong to the process, hence a lock of the threads in front of it.
    """

    def __init__(self, name):
        # Opened once: closing any descriptor of a file drops the locks of the process on it.
        self.file = os.open(name, os.O_RDWR)
        self.inside = threading.Lock()

    def visit(self):
        """Goes through one critical section and returns whether somebody else was inside."""
        alone = self.inside.acquire(blocking=False)
        mine = alone and self.try_lock()
        turns = int.from_bytes(os.pread(self.file, 8, 0), "big")
        time.sleep(0.001)
        os.pwrite(self.file, (turns + 1).to_bytes(8, "big"), 0)
        if mine:
            fcntl.lockf(self.file, fcntl.LOCK_UN)
        if alone:
            self.inside.release()
        return not mine

    def try_lock(self):
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False


class Driver:
    def __init__(self, new_lock):
        self.new_lock = new_lock
        self.lock = new_lock()

    def acquire(self, millis=None):
        try:
            got = self.lock.acquire(timeout=millis and int(millis) / 1000)
        except LockTimeout:
            got = False
        return {"TimedOut": not got}

    def release(self):
        if not self.lock.release():
            raise RuntimeError("released nothing")
        return {}

    def contend(self, millis, threads, file):
        """Lets each of some threads take turns for a while."""
        end = time.monotonic() + int(millis) / 1000
        oracle = Oracle(file)
        with concurrent.futures.ThreadPoolExecutor(int(threads)) as pool:
            pending = [pool.submit(self.take_turns, oracle, end) for _ in range(int(threads))]
            results = [p.result() for p in pending]
        turns = [turns for turns, _ in results]
        return {"Turns": sum(turns), "Fewest": min(turns), "Overlaps": sum(overlaps for _, overlaps in results)}

    def take_turns(self, oracle, end):
        lock = self.new_lock()
        turns = overlaps = 0
        while time.monotonic() < end:
            lock.acquire()
            try:
                overlaps += oracle.visit()
            finally:
                lock.release()
            turns += 1
        return turns, overlaps

    def obey(self, orders):
        while True:
            name, *args = orders.get().split()
            try:
                answer(**getattr(self, name)(*args))
            except Exception as e:
                answer(Error=repr(e))


def answer(**fields):
    print(json.dumps(fields), flush=True)


def lock_maker(client, path, kind):
    recipes = {
        "kazoo": client.Lock,
        "kazoo-default": client.Lock,
        "kazoo-write": client.WriteLock,
        "kazoo-read": client.ReadLock,
    }
    recipe = recipes[kind.removesuffix("-extra")]
    patterns = ["lock-"] if kind == "kazoo" or kind.endswith("-extra") else []
    return lambda: recipe(path, "interop", extra_lock_patterns=patterns)


def main(servers, path, session_millis, kind):
    client = KazooClient(hosts=servers, timeout=int(session_millis) / 1000)
    client.start()
    driver = Driver(lock_maker(client, path, kind))
    answer(Session=client.client_id[0])
    orders = queue.Queue()
    threading.Thread(target=driver.obey, args=[orders], daemon=True).start()
    for line in sys.stdin:
        orders.put(line)
    client.stop()
    os._exit(0)  # whatever the worker is waiting for


main(*sys.argv[1:])
