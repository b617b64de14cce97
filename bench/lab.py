"""The sites that are measured: those of tests/system, with the product's own defaults where the tests have shorter ones."""

import contextlib
import json
import pathlib
import signal
import subprocess
import threading
import time

import harness

# Times are what tombolod has unless told otherwise; tests/system/harness.py is more impatient.
# Streams are as many as those have that it is held against; keys that are about their number take
# `auto`.
LINK_STREAMS = 8
LINK = {"streams": LINK_STREAMS, "heartbeat_ms": 1000, "down_ms": 3000, "retry_max_ms": 5000}

MIB = 1 << 20


def mib_of(path):
    """Room for the file, which --data may have named, whatever its key speaks of."""
    return -(-path.stat().st_size // MIB)


WHOLE = {"codec": "raw", "protocol_max": 1}  # as a full copy is measured: again and again the same bytes
WHOLE_INSIDE = {"encoded": "false"}          # likewise of fabrics: a worker that holds the same bytes already would read that nothing has changed


def east_west(lab, arena_mib, steps=False, link=None, **model):
    """East is home of `policy`, west subscribes and dials it directly. Neither is started. Versions cross whole and raw, unless
    `steps`: then as the product's defaults have it, as deltas against what west holds. `link` has keys that stand over all that."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=arena_mib, **model)
    for site in (east, west):
        site.extra = {"link": dict(LINK, **({} if steps else WHOLE), **(link or {})), "session": {"lease_ms": 10000}}
    return east, west


def rank(lab, site, path, name="rank", **open_with):
    """A publisher that holds all tensors of a file; (worker, run)."""
    worker = harness.Worker(lab, name, site, threads=0, **open_with)
    worker.send("register", tensors=harness.safetensors_table(path), file=str(path))
    harness.expect("register", worker.receive(timeout_s=300)["status"], "ok")
    return worker, worker.ok("run", model="policy", key="bench")["run"]


def publish(worker, run, number):
    return worker.ok("publish", model="policy", run=run, number=number, shard=0, shards=1, timeout_ms=120000)


def read_bytes(workers, uid):
    """Bytes that all of them took over the site's network for a version."""
    staged = [s for w in workers for s in w.worker.ok("status", what="session")["json"]["staged"]]
    return sum(s["read_bytes"] for s in staged if s["uid"] == uid)


def read_whole(workers, uid, path):
    """A version of that file went to each of them as it is, and not as what had changed of it."""
    each = sum(t["bytes"] for t in harness.safetensors_table(path))
    harness.expect(f"bytes read of {each} a reader", read_bytes(workers, uid) >= each * len(workers), True)


def logged_at(process, *words, timeout_s=120):
    """When a log line with all the words was written, within a millisecond; the log is read as it grows."""
    end = time.monotonic() + timeout_s
    with open(process.log_path, encoding="utf-8", errors="replace") as log:
        pending = ""
        while time.monotonic() < end:
            pending += log.readline()
            if not pending.endswith("\n"):
                time.sleep(0.0005)
                continue
            if all(w in pending for w in words):
                return time.monotonic()
            pending = ""
    raise harness.Failed(f"{process.name} did not log {' '.join(words)}")


class Seen(threading.Thread):
    """When a log line with all the words is written, watched for from now on: of several processes at once, while they run."""

    def __init__(self, process, *words, timeout_s=120):
        super().__init__(daemon=True)
        self.watched = process, words, timeout_s
        self.when, self.error = None, None
        self.start()

    def run(self):
        process, words, timeout_s = self.watched
        try:
            self.when = logged_at(process, *words, timeout_s=timeout_s)
        except harness.Failed as error:
            self.error = error

    def at(self):
        self.join()
        if self.error is not None:
            raise self.error
        return self.when


def crossing_s(west, number):
    """Seconds from the crossing's begin until all of it is held, at west."""
    begun = logged_at(west.daemon, "crossing.begun", f"number={number} ")
    return logged_at(west.daemon, "copy.whole", f"number={number} ") - begun


@contextlib.contextmanager
def stopped(process):
    """The process does nothing meanwhile."""
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


UNSTEADY = []  # floors of this round of which no two passes agreed


def tool(argv, timeout_s=300):
    """The JSON line that a program of bench/ prints."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise harness.Failed(f"{argv[0]} exited {done.returncode}: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    if not said.get("steady", True):
        UNSTEADY.append(pathlib.Path(argv[0]).name)
    return said


def rss_anon_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    raise harness.Failed(f"/proc/{pid}/status has no RssAnon")


@contextlib.contextmanager
def rss_anon_sampled(process, hz=10):
    """A list of the process's RssAnon in MiB, sampled while the context lasts."""
    samples, ended = [rss_anon_mib(process.popen.pid)], threading.Event()

    def sample():
        while not ended.wait(1 / hz):
            samples.append(rss_anon_mib(process.popen.pid))
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()
