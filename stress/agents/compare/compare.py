"""Compares the Python client of tierlock agent with kazoo's Lock and redis-py's Lock, on the same servers: see make bench-agent.

Eight processes want one lock all the time. A section sleeps for 1 ms, as in the other benchmarks. In each round, every lock has one run,
and each round begins with a different lock. A run starts new processes, which warm up before they are measured. After each run, one
process acquires and releases the lock alone. A file lock of the kernel shows which sections overlap. Before the first round it has to show
overlaps of processes that take no lock.
"""

import argparse
import fcntl
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROCESSES, SECTION = 8, 0.001
GOALS = [  # lock, figure, the lock it is compared with, what it has to reach
    ("tierlock.py, one agent, on ZooKeeper", "rate", "kazoo", 5), ("tierlock.py, one agent, on ZooKeeper", "jain", None, 0.95),
    ("tierlock.py, one agent, on Redis", "rate", "redis-py", 1), ("tierlock.py, one agent, on Redis", "jain", None, 0.95),
]


class Fence:
    """A file that shows whether another process is inside."""

    def __init__(self, path):
        self.file, self.overlaps = open(path, "a"), 0

    def __enter__(self):
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.overlaps += 1

    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def tierlock(task):
    sys.path.insert(0, str(ROOT / "clients/python"))
    import tierlock
    lock, holds = tierlock.connect(task["socket"]).mutex(task["path"]), []
    return lambda: holds.append(lock.acquire()), lambda: holds.pop().release()


def kazoo(task):
    from kazoo.client import KazooClient
    client = KazooClient(task["zookeeper"])
    client.start()
    lock = client.Lock(task["path"])
    return lock.acquire, lock.release


def redis_py(task, **options):
    from redis import Redis
    lock = Redis.from_url(task["redis"]).lock(task["path"], **options)
    return lock.acquire, lock.release


LOCKS = {
    "tierlock.py, one agent, on ZooKeeper": tierlock,
    "tierlock.py, an agent per process, on ZooKeeper": tierlock,
    "kazoo": kazoo,
    "tierlock.py, one agent, on Redis": tierlock,
    "tierlock.py, an agent per process, on Redis": tierlock,
    "redis-py": redis_py,
    "redis-py, sleep=0.01": lambda task: redis_py(task, sleep=0.01),
    "redis-py, sleep=0.001": lambda task: redis_py(task, sleep=0.001),
}


def work(task):
    """Is one process. Prints ready, reads when to begin and to end, and prints what it has measured in between."""
    acquire, release = LOCKS[task["lock"]](task) if task["lock"] else (lambda: None, lambda: None)
    fence, took = Fence(task["fence"]), []
    acquire()  # opens connections
    release()
    print("ready", flush=True)
    begin, end = json.loads(sys.stdin.readline())
    got = 0
    while got < end:
        asked = time.monotonic()
        acquire()
        got = time.monotonic()
        with fence:
            time.sleep(task["section"])
        left = time.monotonic()
        release()
        if begin <= got < end:
            took.append(got - asked + (time.monotonic() - left if task["alone"] else 0))
    print(json.dumps({"took": took, "waited": max(end - asked, 0), "overlaps": fence.overlaps}))


class Bench:
    def __init__(self, folder, options):
        self.folder, self.options, self.started, self.begun = folder, options, [], time.monotonic()

    def serve(self):
        """Starts the servers and the agents."""
        folder = self.folder
        for name, package in ("serve", "./internal/test/serve"), ("tierlock", "./cmd/tierlock"):
            subprocess.run(["go", "build", "-o", folder / name, package], cwd=ROOT, check=True)
        self.urls = {store: self.start(folder / "serve", store).split("=", 1)[1] for store in ("zookeeper", "redis")}
        for store, url in self.urls.items():
            for i in range(PROCESSES + 1):
                self.start(folder / "tierlock", "agent", "-store", url, "-listen", f"unix:{folder}/{store}-{i}")

    def start(self, *command):
        """Starts a program, and returns the line in which it says that it serves."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("TIERLOCK_STORE=") or "serving the locks" in line:
                return line.strip()
        raise SystemExit("".join(said))

    def stop(self):
        for process in reversed(self.started):
            process.terminate()
            process.communicate()

    def run(self, lock, processes=PROCESSES, section=SECTION, seconds=None, alone=False):
        """Runs processes that want the lock. Returns what each of them has measured."""
        workers = []
        for i in range(processes):
            store = "redis" if "Redis" in lock else "zookeeper"
            task = {
                "lock": lock, "path": "/compare/alone" if alone else "/compare/lock", "section": section, "alone": alone,
                "socket": f"{self.folder}/{store}-{i + 1 if 'per process' in lock else 0}", "fence": f"{self.folder}/fence",
                "zookeeper": self.urls["zookeeper"].removeprefix("zk://"), "redis": self.urls["redis"],
            }
            workers.append(subprocess.Popen([sys.executable, __file__, json.dumps(task)], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for worker in workers:
            if worker.stdout.readline() != "ready\n":
                raise SystemExit(f"{lock}: a process has failed")
        begin = time.monotonic() + self.options.warm
        for worker in workers:
            worker.stdin.write(json.dumps([begin, begin + (seconds or self.options.seconds)]) + "\n")
            worker.stdin.flush()
        return [json.loads(worker.communicate()[0]) for worker in workers]

    def measure(self, lock):
        """Returns the figures of one run of the lock."""
        seen = self.run(lock)
        counts = [len(one["took"]) for one in seen]
        waits = sorted(took for one in seen for took in one["took"] + [one["waited"]])
        alone = sorted(self.run(lock, processes=1, section=0, seconds=1, alone=True)[0]["took"])
        return {
            "rate": sum(counts) / self.options.seconds, "jain": sum(counts) ** 2 / (len(counts) * sum(n * n for n in counts)),
            "p50": waits[len(waits) // 2], "p99": waits[len(waits) * 99 // 100], "max": waits[-1],
            "alone p50": alone[len(alone) // 2], "alone p99": alone[len(alone) * 99 // 100],
            "overlaps": sum(one["overlaps"] for one in seen),
        }

    def rounds(self):
        """Returns the figures of each lock in all rounds, and how many rounds began while other programs used the processors."""
        if not sum(one["overlaps"] for one in self.run("", seconds=0.5)):
            raise SystemExit("the fence shows no overlap although there was no lock")
        for lock in LOCKS:  # the servers warm up
            self.run(lock, seconds=1)
        figures, busy, locks = {lock: [] for lock in LOCKS}, 0, list(LOCKS)
        for i in range(self.options.rounds):
            busy += not quiet()
            for lock in locks[i % len(locks):] + locks[:i % len(locks)]:
                run = self.measure(lock)
                figures[lock].append(run)
                print(f"round {i + 1}, {lock}:", ", ".join(f"{name} {value:.3g}" for name, value in run.items()), file=sys.stderr)
        return figures, busy


def quiet():
    """Returns whether at least half of the processors are idle in most samples."""
    running = []
    for _ in range(20):
        time.sleep(0.01)
        running.append(int(pathlib.Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1)
    return 2 * statistics.median(running) <= os.cpu_count()


def number(value, unit=""):
    """Formats a value with three digits. A value in seconds is given in a unit that fits."""
    if unit == "s":
        scale, unit = (1, " s") if value >= 1 else (1e3, " ms") if value >= 1e-3 else (1e6, " µs")
        value *= scale
    digits = max(3 - len(str(int(value))), 0) if value > 1 else 3
    return f"{value:,.{digits}f}{unit}"


def cell(values, unit=""):
    low, middle, high = (number(value, unit) for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def tables(figures):
    yield "| lock | per second | wait p50 | wait p99 | wait max | Jain, processes | overlaps | alone p50 | alone p99 |"
    yield "|" + "---|" * 9
    for lock, runs in figures.items():
        of = {name: [run[name] for run in runs] for name in runs[0]}
        yield "| " + " | ".join([
            lock, cell(of["rate"]), *(cell(of[name], "s") for name in ("p50", "p99", "max")), cell(of["jain"]), str(sum(of["overlaps"])),
            *(cell(of[name], "s") for name in ("alone p50", "alone p99")),
        ]) + " |"
    yield ""
    yield "| lock | figure | goal | measured | by every run |"
    yield "|" + "---|" * 5
    for lock, figure, other, least in GOALS:
        name = f"per second, against {other}" if other else "Jain, processes"
        values = [run[figure] / (figures[other][i][figure] if other else 1) for i, run in enumerate(figures[lock])]
        unit = " ×" if other else ""
        yield f"| {lock} | {name} | ≥ {least}{unit} | {cell(values, unit)} | {'met' if min(values) >= least else '**missed**'} |"


def facts(bench):
    import kazoo.client
    import kazoo.version
    import redis
    client = kazoo.client.KazooClient(bench.urls["zookeeper"].removeprefix("zk://"))
    client.start()
    zookeeper = ".".join(map(str, client.server_version()))
    client.stop()
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True)
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return (f"date {time.strftime('%d %B %Y, %H:%M UTC', time.gmtime())}, commit {commit.stdout.strip()}, processor {model}, "
            f"processors {os.cpu_count()}, system {platform.system()} {platform.release()}, Python {platform.python_version()}, "
            f"kazoo {kazoo.version.__version__}, redis-py {redis.__version__}, ZooKeeper {zookeeper}, "
            f"Redis {redis.Redis.from_url(bench.urls['redis']).info()['redis_version']}, servers 1, "
            "sync of the log forced on ZooKeeper, every second on Redis.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="how long a run is measured")
    parser.add_argument("--warm", type=float, default=1, help="how many seconds a run warms up")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tierlock-compare-") as folder:
        bench = Bench(pathlib.Path(folder), options)
        try:
            bench.serve()
            figures, busy = bench.rounds()
            took = time.monotonic() - bench.begun
            print(f"`make bench-agent` took {took:.0f} s: {options.rounds} rounds, runs of {options.seconds:g} s. {facts(bench)}")
            if busy:
                print(f"**Other programs used the processors** before {busy} of the {options.rounds} rounds.")
            print("", *tables(figures), sep="\n")
        finally:
            bench.stop()
    return any(run["overlaps"] for runs in figures.values() for run in runs)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        work(json.loads(sys.argv[1]))
    else:
        sys.exit(main())
