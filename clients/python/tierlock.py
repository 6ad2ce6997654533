"""A lock for programs on many hosts, through the tierlock agent of this host.

    locks = tierlock.connect("/run/tierlock.sock")
    with locks.mutex("/jobs/report", wait=10) as hold:
        write_report(token=hold.token)

This file needs only Python 3.9. All objects may be used by several threads. README.md says what is not promised.
"""

import http.client
import itertools
import json
import os
import socket
import threading
import time
import weakref
from urllib.parse import urlencode

PATIENCE = 10.0  # the seconds in which the agent has to answer a request that does not wait for a lock
BATCH = 50  # how many holds one request renews

if hasattr(time, "CLOCK_BOOTTIME"):

    def clock():
        return time.clock_gettime(time.CLOCK_BOOTTIME)  # counts the sleep of the machine
else:
    clock = time.monotonic  # may not count the sleep of the machine


class LockError(Exception):
    """The base of all errors. code is the code of the agent, or "" if the agent did not answer."""

    def __init__(self, text, code=""):
        super().__init__(text)
        self.code = code


def error(name, text):
    return type(name, (LockError,), {"__doc__": text, "__module__": __name__})


Locked = error("Locked", "wait is 0, and the lock is taken.")
WaitLimit = error("WaitLimit", "The lock was not free within the time of wait.")
Lost = error("Lost", "The hold has ended. Another client may have the lock.")
Forbidden = error("Forbidden", "The allow file of the agent does not permit it, or the hold belongs to another process.")
Unavailable = error("Unavailable", "The agent or the store cannot be reached, or refuses requests for now.")
Ambiguous = error("Ambiguous", "A save may have taken effect, or may yet take effect while the hold lasts.")

ERRORS = {"locked": Locked, "wait_limit": WaitLimit, "lost": Lost, "unknown_id": Lost, "forbidden": Forbidden,
          "ambiguous": Ambiguous, "unavailable": Unavailable, "grace_period": Unavailable, "closing": Unavailable, "too_many": Unavailable}


class Connection(http.client.HTTPConnection):
    """A connection to the socket of the agent."""

    def __init__(self, address):
        super().__init__("agent", timeout=PATIENCE)
        self.address = address

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.address)

    def hang_up(self):
        """Ends the connection, also while another thread reads from it."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        self.close()


def refusal(answer, text):
    try:
        said = json.loads(text)
    except ValueError:
        said = {"code": "failed", "error": f"status {answer.status}"}
    return ERRORS.get(said["code"], LockError)(said["error"], said["code"])


def connect(address):
    """Returns the locks of the agent at a Unix socket. Sends nothing: the first request connects."""
    return Locks(address)


class Locks:
    """The locks of an agent. Its methods return a Lock: use it in a with statement, or call acquire and release.

    wait is the limit of the wait in seconds: None is no limit, and 0 does not wait. listen is "contended", "revoke", or both with a comma.
    label is a text that operators see.
    """

    everywhere = weakref.WeakSet()

    def __init__(self, address):
        self.address = address
        self.begin()
        Locks.everywhere.add(self)

    def begin(self):
        self.mutex_of_state = threading.Lock()  # guards the fields below; never held during a request
        self.spare = []  # connections without a request
        self.holds = set()
        self.users = 0  # holds and waits
        self.every = 1.0  # the seconds between two renewals
        self.renewer = None  # the thread that renews, while there is a hold or a wait

    def mutex(self, *paths, **options):
        """Returns the mutex at a path. Several paths are acquired all or none."""
        return Lock(self, [("path", path) for path in paths], **options)

    def reader(self, *paths, **options):
        """Returns the reading side of the reader/writer lock at a path."""
        return Lock(self, [("path", path) for path in paths] + [("mode", "read")], **options)

    def writer(self, *paths, **options):
        """Returns the writing side of the reader/writer lock at a path."""
        return Lock(self, [("path", path) for path in paths] + [("mode", "write")], **options)

    def semaphore(self, path, permits, of, **options):
        """Returns a claim on some of the permits of the semaphore at a path."""
        return Lock(self, [("path", path), ("permits", permits), ("of", of)], **options)

    def load(self, path):
        """Returns the value beside the lock and the token of the hold that saved it, or None. Blocks while the store cannot be reached."""
        try:
            answer, data = self.ask("GET", "value", [("path", path)])
        except LockError as err:
            if err.code == "no_value":
                return None
            raise
        return data, int(answer.headers["Tierlock-Token"])

    def ask(self, method, what, query, body=None, lost_answer=Unavailable, patience=PATIENCE):
        """Sends a request and returns the answer. A request that was sent, but not answered, raises lost_answer."""
        with self.mutex_of_state:
            conn = self.spare.pop() if self.spare else Connection(self.address)
        try:
            conn.timeout = patience
            if conn.sock:
                conn.sock.settimeout(patience)
            try:
                conn.request(method, f"/v1/{what}?{urlencode(query)}", body)
                answer = conn.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError):  # the agent has closed an idle connection
                conn.close()
                conn.request(method, f"/v1/{what}?{urlencode(query)}", body)
                answer = conn.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as err:
            conn.close()
            raise lost_answer(f"the agent at {self.address}: {err or type(err).__name__}") from err
        with self.mutex_of_state:
            self.spare.append(conn)
        if answer.status != 200:
            raise refusal(answer, data)
        return answer, data

    def use(self, more):
        """Counts holds and waits. The first one starts the renewals."""
        with self.mutex_of_state:
            self.users += more
            if self.users and not self.renewer:
                self.renewer = threading.Thread(target=self.keep, name="tierlock", daemon=True)
                self.renewer.start()

    def keep(self):
        """Renews the holds, and ends those that are not valid any more."""
        due = 0.0
        while True:
            with self.mutex_of_state:
                holds = list(self.holds)
                if not self.users:
                    self.renewer = None
                    return
            if holds and clock() >= due:
                try:
                    self.renew(holds)
                except LockError:
                    pass  # the next try follows; without an answer the holds end by the clock
                due = clock() + self.every
            for hold in holds:
                if hold.remaining() <= 0:
                    hold.lose(Lost("the agent has not answered in time"))
            time.sleep(min(self.every / 4, 0.05))

    def renew(self, holds):
        for first in range(0, len(holds), BATCH):
            some = holds[first:first + BATCH]
            sent = clock()
            # This thread also ends the holds, so it does not wait for the answer until after the end of one.
            patience = min([PATIENCE] + [max(hold.until - sent, 0.01) for hold in self.holds])
            said = json.loads(self.ask("POST", "renew", [("id", hold.id) for hold in some], patience=patience)[1])
            self.every = said["renew_ms"] / 1000
            for hold in some:
                if hold.id in said.get("ended", ()):
                    hold.lose(Lost("the agent has ended the hold"))
                else:
                    hold.extend(sent + said["valid_ms"] / 1000)


class Lock:
    """Something that can be acquired. A with statement releases it; after an exception it releases it as unsettled."""

    def __init__(self, locks, query, wait=None, listen="", label=""):
        limit = [] if wait is None else [("wait", f"{max(int(wait * 1000), 0 if wait <= 0 else 1)}ms" if wait > 0 else "0")]
        extra = [(name, value) for name, value in (("listen", listen), ("label", label)) if value]
        self.locks, self.query, self.inside = locks, query + limit + extra, threading.local()
        self.limit = None if wait is None else max(wait, 0) + PATIENCE  # an agent that hangs does not end the wait

    def acquire(self):
        """Blocks until the lock is acquired, and returns the Hold. Raises Locked, WaitLimit, Unavailable, Forbidden or LockError."""
        locks, conn = self.locks, Connection(self.locks.address)
        locks.use(1)
        try:
            sent = clock()
            conn.connect()
            conn.sock.settimeout(self.limit)
            conn.request("POST", "/v1/hold?" + urlencode(self.query))
            answer = conn.getresponse()
            conn.sock.settimeout(None)
            if answer.status != 200:
                raise refusal(answer, answer.read())
            hold = Hold(locks, conn, answer, json.loads(answer.readline()), sent)
            # After a long wait the validity has to begin anew. An earlier renewal does not count: if it did not name this hold, and the agent
            # granted the lock before it arrived, then it renewed nothing.
            if clock() - sent > locks.every:
                locks.renew([hold])
            hold.check()
        except (OSError, http.client.HTTPException, ValueError) as err:
            conn.hang_up()
            locks.use(-1)
            raise Unavailable(f"the agent at {locks.address}: {err or type(err).__name__}") from err
        except BaseException:  # also KeyboardInterrupt: the end of the connection leaves the queue
            conn.hang_up()
            locks.use(-1)
            raise
        hold.start()
        return hold

    def __enter__(self):
        hold = self.acquire()
        self.inside.holds = getattr(self.inside, "holds", []) + [hold]
        return hold

    def __exit__(self, kind, value, trace):
        hold = self.inside.holds.pop()
        if kind is None:
            hold.release()
            return
        try:
            hold.release(unsettled=True)  # the exception may have interrupted a write
        except LockError:
            pass  # the exception of the body says more


class Hold:
    """What an acquisition holds. token grows from owner to owner; with several paths, tokens has one per path."""

    def __init__(self, locks, conn, answer, said, sent):
        self.locks, self.conn, self.answer, self.pid = locks, conn, answer, os.getpid()
        self.id, self.token = said["id"], int(said.get("token", 0))
        self.tokens = {path: int(token) for path, token in said.get("tokens", {}).items()}
        self.lost, self.contended, self.revoke_requested = threading.Event(), threading.Event(), threading.Event()
        self.loss, self.released, self.guard = None, False, threading.Lock()
        self.turns = itertools.count(1)  # a write that arrives late does not undo a later one
        self.until = sent + said["valid_ms"] / 1000
        locks.every = said["renew_ms"] / 1000

    def start(self):
        with self.locks.mutex_of_state:
            self.locks.holds.add(self)
        threading.Thread(target=self.listen, name="tierlock " + self.id, daemon=True).start()

    def listen(self):
        """Reads the events of the stream."""
        loss = "the connection to the agent has ended"
        try:
            for line in iter(self.answer.readline, b""):
                said = json.loads(line)
                if said["event"] == "contended":
                    self.contended.set()
                elif said["event"] == "revoke":
                    self.revoke_requested.set()
                elif said["event"] == "lost":
                    loss = said["error"]
                    break
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass
        self.lose(Lost(loss))

    def extend(self, until):
        with self.guard:
            self.until = max(self.until, until)

    def remaining(self):
        """Returns for how many seconds the hold is valid if it is not renewed again; 0 or less if it has ended."""
        return 0.0 if self.loss or self.released or os.getpid() != self.pid else self.until - clock()

    def check(self):
        """Raises Lost unless the hold is valid now. Sends nothing. Call it before each step that must not come too late."""
        self.own()
        if self.released:
            raise Lost("the hold was released")
        if self.remaining() <= 0:
            self.lose(Lost("the agent has not answered in time"))
        if self.loss:
            raise self.loss

    def own(self):
        if os.getpid() != self.pid:
            raise Forbidden("the hold belongs to the process that acquired it, and not to a forked child", "forbidden")

    def lose(self, loss):
        with self.guard:
            if self.released or self.loss:
                return
            self.loss = loss
        self.lost.set()
        self.conn.hang_up()

    def save(self, data):
        """Saves up to 16 KiB beside the lock, while the lock is held. Raises Ambiguous if the outcome is unknown."""
        self.check()
        self.locks.ask("PUT", "value", [("id", self.id), ("turn", next(self.turns))], data, Ambiguous)

    def forget(self):
        """Removes the value beside the lock."""
        self.check()
        self.locks.ask("DELETE", "value", [("id", self.id), ("turn", next(self.turns))], None, Ambiguous)

    def downgrade(self):
        """Makes a writer a reader."""
        self.check()
        self.locks.ask("POST", "downgrade", [("id", self.id)])

    def release(self, unsettled=False):
        """Releases the lock. Pass unsettled=True if a write may still be under way: the next owner then has a higher token. Raises Lost if
        the lock was lost before. After any result the hold has ended."""
        self.own()
        with self.guard:
            if self.released:
                raise Lost("the hold was released before")
            loss, self.released = self.loss, True
        with self.locks.mutex_of_state:
            self.locks.holds.discard(self)
        try:
            if loss or self.until <= clock():
                raise loss or Lost("the agent has not answered in time")
            self.locks.ask("POST", "release", [("id", self.id)] + [("unsettled", 1)] * unsettled)
        finally:
            self.conn.hang_up()  # ends the hold if the agent has not answered
            self.locks.use(-1)


def forked():
    """Drops what a child has inherited. Closing its copies of the connections does not end them: the parent has them, too."""
    for locks in list(Locks.everywhere):
        for conn in [hold.conn for hold in locks.holds] + locks.spare:
            if conn.sock:
                os.close(conn.sock.detach())
        locks.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)
