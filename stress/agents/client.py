"""A client of a run, in Python. It acquires the lock again and again, and records what it sees.

Its task, its reports and its journal are those of the clients in Go: see message.go and stay.go in stress/internal/load, and journal.go in
stress/internal/evidence.
"""

import collections
import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))

import tierlock  # noqa: E402


def now():
    """Returns the time of stress/internal/clock. The client of the lock measures its validity on another clock, CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Fence:
    """A connection to the fence, which speaks JSON-RPC."""

    def __init__(self, directory):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.path.join(directory, "fence"))
        self.answers = self.sock.makefile()

    def ask(self, method, **access):
        self.sock.sendall(json.dumps({"id": 0, "method": "Fence." + method, "params": [access]}).encode())
        answer = json.loads(self.answers.readline())
        if answer["error"]:
            raise RuntimeError(answer["error"])
        return answer["result"]


class Client:
    def __init__(self, task):
        self.process, self.agent, self.section = task["Process"], task["Agent"], task["Section"] / 1e9
        self.long, self.long_every = task["Long"] / 1e9, task["LongEvery"]
        self.lock = tierlock.connect(task["Servers"][0].split(":", 1)[1]).mutex(task["LockPaths"][0], wait=5)
        self.fence, self.errors, self.last = Fence(task["Dir"]), collections.Counter(), 0
        self.journal = os.open(os.path.join(task["Dir"], f"journal-{self.process}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.linger = os.path.join(task["Dir"], f"linger-{self.process}")  # while it exists, the section goes on until a loss
        self.deaf = task["Lock"] == "deaf"  # for a test of the judge: the client ignores that its hold has ended

    def work(self, stopped):
        while not stopped.is_set():
            try:
                self.turn()
            except tierlock.WaitLimit:
                pass
            except tierlock.LockError as err:
                self.errors[type(err).__name__] += 1
                time.sleep(0.01)

    def turn(self):
        asked = now()
        self.hold = self.lock.acquire()
        self.last += 1
        self.seen = {"Process": self.process, "Agent": self.agent, "ID": self.last, "Path": 0, "Weight": 1,
                     "Token": self.hold.token, "Asked": asked, "Got": now()}
        self.look()
        self.record()
        self.visit()
        self.release()
        self.record()

    def record(self):
        os.write(self.journal, json.dumps(self.seen).encode() + b"\n")

    def look(self):
        """Checks whether the lock is still held, and records the answer. The time is read first: the process may be paused in between."""
        at = now()
        try:
            self.hold.check()
        except tierlock.Lost:
            if not self.deaf:
                self.seen["Lost"] = True
                return False
        self.seen["Valid"] = at
        return True

    def visit(self):
        """The critical section, which goes on after a loss: the fence has to refuse the write."""
        begin = now()
        if self.fence.ask("Enter", Process=self.process)["Overlap"]:
            self.seen["Met"] = {"From": begin, "Until": now()}
        self.write()
        self.fence.ask("Leave")
        self.seen["Left"] = now()

    def write(self):
        access = {"Token": self.hold.token, "Process": self.process, "Agent": self.agent}
        answer = self.fence.ask("Read", **access)
        if answer["Refused"]:
            return self.refused()
        if self.long_every and random.random() < 1 / self.long_every:
            self.seen["Long"] = True
            time.sleep(self.long)
        else:
            time.sleep(random.uniform(0, 2 * self.section))
        while os.path.exists(self.linger) and self.look():
            time.sleep(0.001)
        if random.random() < 0.5 and not self.look():  # otherwise the client writes without a check
            return
        self.record()
        if self.fence.ask("Write", Fenced=answer["Fenced"], Unfenced=answer["Unfenced"], **access)["Refused"]:
            self.refused()

    def refused(self):
        """A higher token was used. Therefore the hold must have ended before, which the client has to see."""
        self.seen["Refused"], self.seen["Blind"] = True, self.look()

    def release(self):
        called = now()
        try:
            self.hold.release(unsettled=random.random() < 0.125)
            valid = not self.seen.get("Lost")
            if not valid:  # a loss is final, which release has to report
                self.seen["Blind"] = True
        except tierlock.LockError:
            valid, self.seen["Lost"] = False, not self.deaf
        self.seen["Over"] = now()
        if valid or self.deaf:
            self.seen["Valid"] = called


def obey(stopped):
    """Waits for an order to stop, and then for the end of the orders."""
    for _ in sys.stdin:
        stopped.set()
    stopped.set()


def main():
    client, stopped = Client(json.loads(sys.stdin.readline())), threading.Event()
    print(json.dumps({"Ready": True}), flush=True)
    sys.stdin.readline()
    orders = threading.Thread(target=obey, args=[stopped], daemon=True)
    orders.start()
    client.work(stopped)
    print(json.dumps({"Tally": {"Errors": client.errors}}), flush=True)
    orders.join()


main()
