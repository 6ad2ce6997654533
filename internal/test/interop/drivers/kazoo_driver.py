"""A kazoo lock that obeys orders on its standard input. For the orders and the answers, see driver_test.go."""

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
    """Counts in a file how many units of a lock are taken; a lock of the kernel protects the count. The file also has a
    counter that only a holder of all units changes. See oracle_test.go.
    """

    COUNTER, TAKEN, MOST = 0, 8, 16

    def __init__(self, name, millis, units):
        # The file is opened once, because closing any of its descriptors drops all locks of the process on it.
        self.file = os.open(name, os.O_RDWR)
        self.mine = threading.Lock()
        self.seconds = millis / 1000
        self.all = units

    def enter(self, units):
        """Takes units, and returns whether more units are taken than there are."""
        return self.take(units) > self.all

    def leave(self, units):
        self.take(-units)

    def stay(self, units):
        """Waits for the time of a critical section, and returns whether the counter shows another holder."""
        before = self.get(self.COUNTER)
        time.sleep(self.seconds)
        if units != self.all:
            return self.get(self.COUNTER) != before
        self.put(self.COUNTER, before + 1)
        return False

    def take(self, units):
        with self.mine:
            fcntl.lockf(self.file, fcntl.LOCK_EX)
            try:
                taken = self.get(self.TAKEN) + units
                self.put(self.TAKEN, taken)
                if units != self.all:
                    self.put(self.MOST, max(self.get(self.MOST), taken))
                return taken
            finally:
                fcntl.lockf(self.file, fcntl.LOCK_UN)

    def get(self, offset):
        return int.from_bytes(os.pread(self.file, 8, offset), "big")

    def put(self, offset, value):
        os.pwrite(self.file, value.to_bytes(8, "big"), offset)


class Contender:
    """The contender of a thread. In a reader/writer lock, a reader takes one unit."""

    def __init__(self, usual, reader):
        self.usual, self.reader = usual, reader

    def acquire(self, units=None, millis=0):
        self.held = self.reader if units == 1 else self.usual
        try:
            return self.held.acquire(timeout=millis / 1000 if millis else None)
        except LockTimeout:
            return False

    def release(self):
        if not self.held.release():
            raise RuntimeError("released nothing")


class Driver:
    def __init__(self, new_contender, impatience):
        self.new_contender, self.impatience = new_contender, impatience
        self.contender = new_contender()

    def acquire(self, millis=0):
        return {"TimedOut": not self.contender.acquire(millis=int(millis))}

    def release(self):
        self.contender.release()
        return {}

    def contend(self, millis, threads, stay, file, units, *turns):
        """Makes each thread take turns for a while, at least one."""
        end = time.monotonic() + int(millis) / 1000
        oracle = Oracle(file, int(stay), int(units))
        turns = [int(units) for units in turns]
        with concurrent.futures.ThreadPoolExecutor(int(threads)) as pool:
            pending = [pool.submit(self.take_turns, oracle, end, turns, i) for i in range(int(threads))]
            results = [p.result() for p in pending]
        return {
            "Turns": sum(r["Turns"] for r in results),
            "Alone": sum(r["Alone"] for r in results),
            "Fewest": min(r["Turns"] for r in results),
            "Overlaps": sum(r["Overlaps"] for r in results),
            "GivenUp": sum(r["GivenUp"] for r in results),
        }

    def take_turns(self, oracle, end, turns, i):
        contender = self.new_contender()
        tally = dict.fromkeys(["Turns", "Alone", "Overlaps", "GivenUp"], 0)
        while tally["Turns"] == 0 or time.monotonic() < end:
            units = turns[i % len(turns)]
            i += 1
            if not contender.acquire(units, self.impatience):
                tally["GivenUp"] += 1
                continue
            overlap = oracle.enter(units)
            try:
                overlap |= oracle.stay(units)
            finally:
                oracle.leave(units)
                contender.release()
            tally["Turns"] += 1
            tally["Alone"] += units == oracle.all
            tally["Overlaps"] += overlap
        return tally

    def obey(self, orders):
        while True:
            name, *args = orders.get().split()
            try:
                answer(**getattr(self, name)(*args))
            except Exception as e:
                answer(Error=repr(e))


def answer(**fields):
    print(json.dumps(fields), flush=True)


def contender_maker(client, path, kind):
    recipes = {
        "kazoo": client.Lock,
        "kazoo-default": client.Lock,
        "kazoo-write": client.WriteLock,
        "kazoo-read": client.ReadLock,
        "kazoo-rw": client.WriteLock,
    }
    patterns = ["lock-"] if kind == "kazoo" or kind.endswith("-extra") else []

    def new(recipe):
        return recipe(path, "interop", extra_lock_patterns=patterns)

    usual = recipes[kind.removesuffix("-extra")]
    reader = client.ReadLock if kind.startswith("kazoo-rw") else usual
    return lambda: Contender(new(usual), new(reader))


def main(servers, path, session_millis, kind):
    client = KazooClient(hosts=servers, timeout=int(session_millis) / 1000)
    client.start()
    # Before 2.9.0, a reader and a writer can wait for each other until one of them gives up.
    driver = Driver(contender_maker(client, path, kind), 1000 if kind.startswith("kazoo-rw") else 0)
    answer(Session=client.client_id[0])
    orders = queue.Queue()
    threading.Thread(target=driver.obey, args=[orders], daemon=True).start()
    for line in sys.stdin:
        orders.put(line)
    client.stop()
    os._exit(0)  # ends the process even if the worker still waits


main(*sys.argv[1:])
