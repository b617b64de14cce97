#!/usr/bin/env python3
"""Things that a killed run has left behind: told from what is in use, and taken away.

A run is of a kind, and its prefix is KIND-PID-STARTED and a dot: the process it is, and when that started. Its folders begin with the prefix; what
it starts has it in the environment, as KIND in capitals.

Of a shell: `prefix=$(sim/leavings.py KIND $$)` clears what runs of that kind left whose process is gone, says the prefix of this one, and
leaves a watchdog behind that clears up after it; `export KIND=$prefix` then marks what it starts."""
import contextlib
import os
import pathlib
import re
import select
import shutil
import signal
import sys
import tempfile
import time


def start_time(pid):
    """Tells a process from a later one of the same number; None: it is gone."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        return None if fields[0] == "Z" else fields[19]
    return None


def prefix_of(kind, pid):
    return f"{kind}-{pid}-{start_time(pid)}."


def mark_of(prefix):
    """Processes that have the prefix in the environment, and the prefix."""
    return prefix.rsplit("-", 2)[0].upper().replace("-", "_"), prefix


def processes():
    """The folders of all processes. By their names: a pattern would look into each, and fail at one that ends meanwhile."""
    return [pathlib.Path("/proc") / name for name in os.listdir("/proc") if name.isdigit()]


def environments():
    """(process, its environment with a 0 before each entry) of those that may be read, but of this one."""
    for process in processes():
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid():
                yield int(process.name), b"\0" + (process / "environ").read_bytes()


def marked(name, begins):
    """The processes in whose environment `name` has a value that begins so."""
    mark = f"\0{name}={begins}".encode()
    return {pid for pid, environment in environments() if mark in environment}


def end_all(found, grace_s=3.0):
    """Ends the processes that found() finds, those too that come meanwhile: asks, waits, insists."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until, told = time.monotonic() + grace_s, set()
        while (left := set(found())) and time.monotonic() < until:
            for pid in left - told:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            told |= left
            for pid in left:  # and no other child: its parent in here waits for it
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)


def places():
    """Where runs have folders. The last is where the harness of tests/system puts arenas, if it is told."""
    return tuple(dict.fromkeys((tempfile.gettempdir(), "/dev/shm", os.environ.get("TB_TEST_SHM", "/dev/shm"))))


def folders(begins):
    for place in places():
        for folder in pathlib.Path(place).glob(begins + "*"):
            with contextlib.suppress(OSError):
                if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
                    yield folder


def clear_folders(prefix):
    for folder in folders(prefix):
        shutil.rmtree(folder, ignore_errors=True)


def clear(prefix):
    """Takes away all that a run which is gone has left."""
    end_all(lambda: marked(*mark_of(prefix)))
    clear_folders(prefix)


def orphans(kind):
    """The prefixes of runs that are gone and have left folders or processes."""
    name, begins = mark_of(f"{kind}-0-0.")[0], f"{kind}-"
    named = [folder.name for folder in folders(begins)]
    for _, environment in environments():
        named += re.findall(rf"\0{name}=([^\0]+)", environment.decode(errors="replace"))
    prefixes = {m.group(0) for text in named if (m := re.match(rf"{re.escape(begins)}\d+-\d+\.", text))}
    return {prefix for prefix in prefixes if start_time(prefix.split("-")[-2]) != prefix.rstrip(".").split("-")[-1]}


def clear_orphans(kind, how=clear):
    """Things that killed runs of this kind left, and their watchdogs too."""
    for prefix in orphans(kind):
        how(prefix)


def become_watchdog(keep):
    """A session of its own that no signal of a terminal reaches, with no pipe of the caller's but `keep`, as the caller may wait for its end."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)


def watch(pid, prefix):
    """A process that clears up when that one is gone."""
    gone = os.pidfd_open(pid)
    if os.fork() == 0:
        try:
            become_watchdog(gone)
            select.select([gone], [], [])
            clear(prefix)
        finally:
            os._exit(0)
    os.close(gone)


def main():
    if len(sys.argv) != 3 or not re.fullmatch(r"[a-z-]+", sys.argv[1]) or not sys.argv[2].isdigit():
        sys.exit(f"usage: sim/leavings.py KIND PID\n\n{__doc__}")
    kind, pid = sys.argv[1], int(sys.argv[2])
    clear_orphans(kind)
    print(prefix_of(kind, pid), flush=True)
    watch(pid, prefix_of(kind, pid))


if __name__ == "__main__":
    main()
