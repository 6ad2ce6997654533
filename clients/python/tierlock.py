"""A lock for programs on many hosts, through the tierlock agent of this host.

    locks = tierlock.connect("/run/tierlock.sock")
    with locks.mutex("/jobs/report", wait=10) as hold:
        write_report(token=hold.token)

This file needs only Python 3.8. All objects are safe for threads. README.md says what is not promised.
"""

import contextlib
import functools
import itertools
import json
import os
import selectors
import socket
import threading
import time
import weakref
from urllib.parse import urlencode

__all__ = ["connect", "LockError", "Locked", "WaitLimit", "Lost", "Forbidden", "Unavailable", "Ambiguous"]

PATIENCE = 10.0  # how many seconds an answer may take, in addition to the wait for a lock
BATCH = 64  # how many holds one request can renew
RELEASED, FORKED = "it was released", "it belongs to the process that acquired it, and not to a forked child"

if hasattr(time, "CLOCK_BOOTTIME"):
    clock = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # counts the sleep of the machine
else:
    clock = time.monotonic  # does not count it on every system


class LockError(Exception):
    """The base of all errors here, and the error of a request that can never succeed. code is the agent's, if the agent refused."""

    def __init__(self, text, code=""):
        super().__init__(text)
        self.code = code


Locked = type("Locked", (LockError,), {"__doc__": "The lock is taken, and wait is 0."})
WaitLimit = type("WaitLimit", (LockError,), {"__doc__": "The lock was taken for as long as wait allows."})
Lost = type("Lost", (LockError,), {"__doc__": "The hold has ended. Another client may have the lock."})
Forbidden = type("Forbidden", (LockError,), {"__doc__": "The allow file does not permit it, or the hold belongs to another process."})
Unavailable = type("Unavailable", (LockError,), {"__doc__": "The agent or the store does not answer, or refuses requests for now."})
Ambiguous = type("Ambiguous", (LockError,), {"__doc__": "A write of the value may have taken effect, or may yet."})

ERRORS = {"locked": Locked, "wait_limit": WaitLimit, "lost": Lost, "unknown_id": Lost, "forbidden": Forbidden, "ambiguous": Ambiguous,
          "unavailable": Unavailable, "grace_period": Unavailable, "closing": Unavailable, "too_many": Unavailable}


def connect(address):
    """Returns the Locks of the agent at the path of its Unix socket. Connections are opened when requests need them."""
    return Locks(address)


class Connection:
    """One HTTP/1.1 connection. http.client blocks until an answer is complete; the background thread must not block."""

    everywhere = weakref.WeakSet()

    def __init__(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Connection.everywhere.add(self)

    def send(self, method, target, body):
        self.status, self.headers, self.raw, self.text, self.done = 0, {}, b"", b"", False
        self.sock.sendall(f"{method} {target} HTTP/1.1\r\nHost: agent\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    def receive(self):
        """Reads once. Then text is the part of the body that has arrived, and done says whether the answer is complete."""
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError("the agent has closed the connection")
        self.raw += data
        if not self.status:
            head, end, rest = self.raw.partition(b"\r\n\r\n")
            if not end:
                return
            first, *fields = head.decode("latin-1").split("\r\n")
            self.status, self.raw = int(first[9:12]), rest  # after "HTTP/1.1 "
            self.headers = dict(map(str.strip, field.lower().split(":", 1)) for field in fields)
        if self.headers.get("transfer-encoding") != "chunked":
            self.text, self.done = self.raw, len(self.raw) >= int(self.headers.get("content-length", 0))
        while not self.done:  # a chunk is its length, a line end, its data, and a line end; the last one is empty
            size, end, rest = self.raw.partition(b"\r\n")
            length = int(size, 16) if end else 0
            if not end or len(rest) < length + 2:
                return
            self.text, self.raw, self.done = self.text + rest[:length], rest[length + 2:], length == 0

    def wait(self, limit, first_line=False):
        """Reads until the answer is complete, or has a first line. If limit is None, there is no limit."""
        end = None if limit is None else time.monotonic() + limit
        while not self.done and not (first_line and self.status == 200 and b"\n" in self.text):
            self.sock.settimeout(None if end is None else max(end - time.monotonic(), 0.001))
            self.receive()

    def lines(self):
        *lines, self.text = self.text.split(b"\n")
        return lines


class Locks:
    """The locks of one agent, as connect returns them."""

    everywhere = weakref.WeakSet()

    def __init__(self, address):
        self.address = address
        self.begin()
        Locks.everywhere.add(self)

    def begin(self):
        self.guard = threading.Lock()  # guards the fields below and the end of each hold; no thread waits for the agent under it
        self.holds, self.idle, self.selector, self.every = set(), [], None, 1.0

    def mutex(self, *paths, **options):
        """Returns the mutex at the path, or those at several paths, to be acquired together. Options: wait in seconds (0 tries once,
        None has no limit), listen="contended,revoke" for these events of the hold, and label, which operators see."""
        return Lock(self, paths, {}, **options)

    def reader(self, *paths, **options):
        """Returns the reader of the reader/writer lock at the path. It has the options of mutex."""
        return Lock(self, paths, {"mode": "read"}, **options)

    def writer(self, *paths, **options):
        """Returns the writer of the reader/writer lock at the path. It has the options of mutex."""
        return Lock(self, paths, {"mode": "write"}, **options)

    def semaphore(self, path, permits, of, **options):
        """Returns some of the permits that the semaphore at the path has. It has the options of mutex, but no revoke."""
        return Lock(self, [path], {"permits": permits, "of": of}, **options)

    def load(self, path):
        """Returns the value beside the lock, and the token of the hold that saved it. Returns None if no value was saved."""
        try:
            _, value, headers = self.ask("GET", "value", urlencode({"path": path}))
        except LockError as err:
            if err.code == "no_value":
                return None
            raise
        return value, int(headers["tierlock-token"])

    def send(self, method, what, query, body=b""):
        """Sends a request. Returns a time before it was sent, and its connection."""
        sent, target = clock(), f"/v1/{what}?{query}"
        while True:
            with self.guard:
                conn = self.idle.pop() if self.idle else None
            fresh = not conn
            try:
                conn = conn or Connection()
                conn.sock.settimeout(PATIENCE)
                if fresh:
                    conn.sock.connect(self.address)
                conn.send(method, target, body)
                return sent, conn
            except OSError as err:
                if conn:
                    conn.sock.close()
                if fresh:  # otherwise the agent had closed the connection, so it does not execute the request
                    raise Unavailable(f"{self.address}: {err}") from err

    def ask(self, method, what, query, body=b"", unanswered=Unavailable):
        """Sends a request and waits for the answer. Raises unanswered if the agent may have executed the request and does not say so."""
        sent, conn = self.send(method, what, query, body)
        mine = True
        try:
            conn.wait(PATIENCE)
            mine = False
            return (sent, *self.answer(conn))
        except (OSError, ValueError, KeyError) as err:
            raise unanswered(f"{self.address}: {err or type(err).__name__}") from err
        finally:
            if mine:
                conn.sock.close()

    def answer(self, conn):
        """Returns the body and the headers of a complete answer, or raises its error. The caller must not use the connection afterwards, in
        any case: it may serve a request of another thread already."""
        status, text, headers = conn.status, conn.text, conn.headers
        if headers.get("connection") == "close":
            conn.sock.close()
        else:
            with self.guard:
                self.idle.append(conn)
        if status != 200:
            said = json.loads(text)
            raise ERRORS.get(said["code"], LockError)(said["error"], said["code"])
        return text, headers

    def keep(self, hold):
        """Makes the background thread renew a hold and read its events. The thread need not be woken: it looks at its holds every time that
        renewals are due, which is before a new hold can expire."""
        hold.conn.sock.setblocking(False)
        with self.guard:
            if not self.selector:
                selector = selectors.DefaultSelector()
                threading.Thread(target=self.work, args=(selector,), name="tierlock", daemon=True).start()
                self.selector = selector
            self.holds.add(hold)  # before register, so that end undoes both
            self.selector.register(hold.conn.sock, selectors.EVENT_READ, hold.hear)

    def work(self, selector):
        """The background thread. It ends if there is no hold when renewals are due."""
        with self.guard:
            if self.selector is not selector:
                return  # an exception came while keep started the thread
        due = clock() + self.every
        try:
            while True:
                with self.guard:
                    holds = list(self.holds)
                    if not holds and clock() >= due:
                        return self.rest()
                left = min([hold.remaining() for hold in holds], default=self.every)  # remaining ends a hold that has expired
                if clock() >= due:
                    due = clock() + self.every
                    self.renew(holds)
                for key, _ in self.selector.select(max(min(left, due - clock()), 0)):
                    key.data()
        except BaseException:
            with self.guard:
                holds = self.rest()
            for hold in holds:
                hold.lose("the background thread has failed")
            raise

    def rest(self):
        """Closes what the background thread needs, under guard. Returns the holds that are left."""
        for closed in [*(key.fileobj for key in self.selector.get_map().values()), *(conn.sock for conn in self.idle), self.selector]:
            closed.close()
        holds, self.holds, self.idle, self.selector = self.holds, set(), [], None
        return holds

    def renew(self, holds):
        """Sends renewals. A new one does not wait for the answer to an earlier one. Without an answer the holds end by the clock."""
        for some in (holds[first:first + BATCH] for first in range(0, len(holds), BATCH)):
            try:
                sent, conn = self.send("POST", "renew", "&".join(f"id={hold.id}" for hold in some))
            except Unavailable:
                return
            try:
                conn.sock.setblocking(False)
                self.selector.register(conn.sock, selectors.EVENT_READ, functools.partial(self.renewed, conn, sent, some))
            except (OSError, ValueError, KeyError):
                conn.sock.close()

    def renewed(self, conn, sent, holds):
        try:
            conn.receive()
        except (OSError, ValueError, KeyError):
            self.selector.unregister(conn.sock)
            conn.sock.close()
            return
        if not conn.done:
            return
        self.selector.unregister(conn.sock)
        try:
            said = json.loads(self.answer(conn)[0])
            self.every = said["renew_ms"] / 1000
            for hold in holds:
                if hold.id in said.get("ended", ()):
                    hold.lose("the agent has ended it")
                elif hold.remaining():  # a hold that has expired stays lost
                    hold.until = max(hold.until, sent + said["valid_ms"] / 1000)
        except (LockError, ValueError, KeyError):
            pass  # the agent refuses to renew for now


class Lock:
    """What can be acquired, any number of times. A with statement acquires and releases it."""

    def __init__(self, locks, paths, kind, wait=None, listen="", label=""):
        if wait is not None and not 0 <= wait < float("inf"):
            raise ValueError("wait is a number of seconds, 0 or more")
        options = {"wait": None if wait is None else f"{wait and max(wait, 0.001):f}s", "listen": listen, "label": label}
        self.query = urlencode({"path": paths, **kind, **{name: value for name, value in options.items() if value}}, doseq=True)
        self.locks, self.name = locks, " ".join(paths)
        self.limit = None if wait is None or wait > 1e6 else wait + PATIENCE  # a socket accepts no timeout of more than 24 days
        self.inside = []  # the thread and the hold of each with statement

    def acquire(self):
        """Waits, and returns a Hold that the caller has to release. Raises Locked, WaitLimit, Forbidden, Unavailable or LockError. Raises
        Lost if this process was stopped when it got the lock, for so long that the lock is lost again."""
        hold, (sent, conn) = Hold(self.locks, self.name), self.locks.send("POST", "hold", self.query)
        hold.conn = conn
        try:
            conn.wait(self.limit, first_line=True)
            if conn.status != 200:
                hold.end("it was refused")  # before other requests can use the connection
                self.locks.answer(conn)
            first, *events = conn.lines()
            said = json.loads(first.decode())
            if clock() >= sent + said["renew_ms"] / 1000:  # after a long wait the validity has to begin anew
                sent, text, _ = self.locks.ask("POST", "renew", "id=" + said["id"])
                said.update(json.loads(text))
            hold.begin(said, sent + said["valid_ms"] / 1000)
            if said.get("ended"):
                hold.lose("this process was stopped when it got the lock")
            hold.tell(events)
            hold.check()
            self.locks.every = said["renew_ms"] / 1000
            self.locks.keep(hold)
            return hold
        except BaseException as err:  # also KeyboardInterrupt: the end of the connection ends the wait, or the hold
            hold.lose("interrupted")
            if isinstance(err, (OSError, ValueError, KeyError)):
                raise Unavailable(f"{self.locks.address}: {err or type(err).__name__}") from err
            raise

    def __enter__(self):
        hold = self.acquire()
        self.inside.append((threading.current_thread(), hold))
        return hold

    def __exit__(self, kind, error, trace):
        with self.locks.guard:  # the last one of this thread, or the first one that another thread has entered
            own = [number for number, (thread, _) in enumerate(self.inside) if thread is threading.current_thread()]
            _, hold = self.inside.pop(own[-1] if own else 0)
        try:
            hold.release(unsettled=kind is not None)  # an exception may have interrupted a write
        except LockError:
            if kind is None:  # otherwise the exception of the body says more
                raise
        finally:
            hold.lose("interrupted")  # if an exception came before release


class Hold:
    """A lock that is held. token is the fencing token; for several paths, tokens has the token of each. lost, contended and
    revoke_requested are events that other threads can wait for."""

    def __init__(self, locks, name):
        self.locks, self.name, self.cause, self.turns = locks, name, "", itertools.count(1)
        self.lost, self.contended, self.revoke_requested = threading.Event(), threading.Event(), threading.Event()

    def begin(self, said, until):  # other clients wait meanwhile, so the rest is done before the wait for the lock
        self.id, self.until = said["id"], until
        self.token = int(said["token"]) if "token" in said else None
        self.tokens = {path: int(token) for path, token in said.get("tokens", {}).items()}

    def remaining(self):
        """Returns for how many seconds the hold is valid without a renewal, or 0 if it has ended."""
        left = self.until - clock()
        if left <= 0:
            self.lose("it was not renewed in time")
        return 0 if self.cause else left

    def check(self):
        """Raises Lost unless the hold is valid now, by the clock, without a request. Raises Forbidden in a forked child."""
        if not self.remaining():
            raise (Forbidden if self.cause == FORKED else Lost)(f"{self.name}: {self.cause}")

    def end(self, cause):
        """Ends the hold once. Returns false if it had ended before."""
        with self.locks.guard:
            if self.cause:
                return False
            if self in self.locks.holds:
                with contextlib.suppress(KeyError, ValueError):  # an exception came between add and register
                    self.locks.selector.unregister(self.conn.sock)
                self.locks.holds.remove(self)
            self.cause = cause or "the agent has ended it"
            return True

    def lose(self, cause):
        if self.end(cause):
            self.conn.sock.close()
            self.lost.set()

    def hear(self):
        """Reads events, in the background thread. The guard keeps release from reading at the same time."""
        try:
            with self.locks.guard:
                if self.cause:
                    return
                self.conn.receive()
                lines = self.conn.lines()
            self.tell(lines)
        except BlockingIOError:
            pass
        except (OSError, ValueError, KeyError) as err:
            self.lose(f"the connection to the agent has ended: {err}")

    def tell(self, lines):
        for said in map(json.loads, lines):
            if said["event"] == "lost":
                self.lose(said["error"])
            elif said["event"] in ("contended", "revoke"):
                (self.contended if said["event"] == "contended" else self.revoke_requested).set()
        if self.conn.done:
            self.lose("the agent has ended it")

    def save(self, data):
        """Saves up to 16 KiB beside the lock. Raises Lost if the hold was lost before, and Ambiguous if the outcome is unknown."""
        self.check()
        self.locks.ask("PUT", "value", f"id={self.id}&turn={next(self.turns)}", data, Ambiguous)

    def forget(self):
        """Removes the value beside the lock. Its errors are those of save."""
        self.check()
        self.locks.ask("DELETE", "value", f"id={self.id}&turn={next(self.turns)}", b"", Ambiguous)

    def downgrade(self):
        """Turns a writer into a reader."""
        self.check()
        self.locks.ask("POST", "downgrade", f"id={self.id}")

    def release(self, unsettled=False):
        """Ends the hold: every write under it was answered. Pass unsettled=True if one may be under way; the next owner then gets a higher
        token. Raises Lost if the hold was lost before, or the agent does not confirm the release. In all cases the hold has ended."""
        mine = False
        try:
            self.check()
            mine = self.end(RELEASED)
            if not mine:
                self.check()
            self.locks.ask("POST", "release", f"id={self.id}{'&unsettled=1' if unsettled else ''}", unanswered=Lost)
            self.conn.wait(PATIENCE)  # after the event released, the connection can serve other requests
            mine = False
            self.locks.answer(self.conn)
        except Unavailable as err:
            raise Lost(f"{self.name}: the release is not confirmed: {err}", err.code) from err
        except (OSError, ValueError):
            pass  # the release was confirmed
        finally:
            self.lose("interrupted")  # if an exception came before end
            if mine:
                self.conn.sock.close()  # if the agent has not confirmed the release, this ends the hold


def forked():
    """Drops what a child has inherited. close leaves the connections of the parent alone; shutdown would end them."""
    for conn in list(Connection.everywhere):
        conn.sock.close()
    for locks in list(Locks.everywhere):
        if locks.selector:
            locks.selector.close()
        for hold in locks.holds:
            hold.cause, hold.lost = FORKED, threading.Event()
            hold.lost.set()
        locks.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)
