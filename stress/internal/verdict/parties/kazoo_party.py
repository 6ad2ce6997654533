"""A process with kazoo's Lock. See party.go for its task, its orders, and the events that it reports."""

import json
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.version import __version__


class Party:
    def __init__(self, task):
        self.losses = 0
        self.path = task["Path"]
        self.client = KazooClient(hosts=",".join(task["Servers"]), timeout=task["Lease"] / 1e9)
        self.client.add_listener(self.listen)
        self.client.start()

    def listen(self, state):
        if state in (KazooState.SUSPENDED, KazooState.LOST):
            self.losses += 1

    def take_turn(self, leave):
        lock = self.client.Lock(self.path, "party")
        while True:
            try:
                if lock.acquire():
                    break
                say("failed", Why="not acquired")
            except Exception as e:
                say("failed", Why=repr(e))
            time.sleep(0.2)
        losses = self.losses
        say("held")
        say("over", At=self.believe(losses, leave))
        try:
            lock.release()
            say("released")
        except Exception as e:
            say("released", Why=repr(e))

    def believe(self, losses, leave):
        """Checks the connection every millisecond. Returns the time of the last check that found it undisturbed."""
        believed = 0
        while True:
            look = time.monotonic_ns()
            if self.client.state != KazooState.CONNECTED or self.losses != losses:
                return believed
            believed = look
            if leave.wait(0.001):
                return believed


def say(what, **fields):
    line = json.dumps({"What": what, "At": time.monotonic_ns(), **fields})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    party = Party(json.loads(sys.stdin.readline()))
    say("ready", Version=__version__)
    for order in sys.stdin:
        if order.strip() == "acquire":
            leave = threading.Event()
            threading.Thread(target=party.take_turn, args=[leave], daemon=True).start()
        else:
            leave.set()


main()
