"""However the bench ends, nothing of it stays: folders (in /tmp and /dev/shm), processes, namespaces of its own.

Its folders begin with a name that says which process they belong to; what it starts has that name in its environment. A
watchdog in a session of its own waits until the bench is gone; should both be killed, the next start clears what is left.
Labs of sim/wan have a watchdog of their own."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import tempfile
import time

import veth

MARK = "TB_BENCH"  # in the environment of what the bench starts
# The last is where the harness of tests/system puts arenas, if it is told.
PLACES = tuple(dict.fromkeys((tempfile.gettempdir(), "/dev/shm", os.environ.get("TB_TEST_SHM", "/dev/shm"))))


def start_time(pid):
    """Tells a process from a later one of the same number; None: it is gone."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        return None if fields[0] == "Z" else fields[19]
    return None


def prefix_of(pid):
    return f"tombolo-bench-{pid}-{start_time(pid)}."


def started_by(prefix):
    """Processes that have the bench's mark in their environment."""
    wanted = f"{MARK}={prefix}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    yield int(entry)


def kill_all(prefix):
    for _ in range(50):  # those that a dying one has just started too
        pids = list(started_by(prefix))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(0.05)


def clear(prefix):
    """Takes down all that a bench which is gone has left."""
    kill_all(prefix)
    if os.geteuid() == 0 and shutil.which("ip"):
        veth.take_down_orphans()
    clear_folders(prefix)


def clear_folders(prefix):
    for place in PLACES:
        for folder in pathlib.Path(place).glob(prefix + "*"):
            shutil.rmtree(folder, ignore_errors=True)


def clear_orphans():
    """What benches left that were killed with their watchdogs."""
    left = {m.group(0) for place in PLACES if os.path.isdir(place) for name in os.listdir(place)
            if (m := re.match(r"tombolo-bench-(\d+)-(\d+)\.", name))}
    for prefix in left:
        _, _, pid, started = prefix.rstrip(".").split("-")
        if start_time(pid) != started:
            clear(prefix)


def watch():
    """(prefix of this process's folders, done): a child clears up unless done() is called first."""
    prefix = prefix_of(os.getpid())
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        wait_and_clear(ours, theirs, prefix)
    os.close(ours)
    os.environ[MARK] = prefix

    def done():
        os.write(theirs, b"d")
        os.close(theirs)
        os.waitpid(child, 0)
    return prefix, done


def wait_and_clear(ours, theirs, prefix):
    """The watchdog, which does not return."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(theirs)
        nothing = os.open(os.devnull, os.O_RDWR)  # not a pipe of the caller's, who may wait for its end
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        if os.read(ours, 1) != b"d":
            clear(prefix)
    finally:
        os._exit(0)
