"""Conditions that a system test waits for, processes that it starts, and where their programs are.

Waiting is always for a condition, with a bound; nothing sleeps to let something happen."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.setdefault("TB_BUILD_DIR", str(SOURCE / "build/dev")))
sys.path.append(str(SOURCE / "sim"))
import leavings  # noqa: E402
HELD_SYNC = BUILD / "tests/system/libtombolo-test-held-sync.so"
HELD_READ = BUILD / "tests/system/libtombolo-test-held-read.so"
SHIFTED_CLOCK = BUILD / "tests/system/libtombolo-test-shifted-clock.so"
# Sanitized builds are several times slower; conditions that are met on time there are met early
# elsewhere.
PATIENCE_S = float(os.environ.get("TB_PATIENCE_S", "60"))
PATIENCE_MS = int(PATIENCE_S * 1000)
PATIENCE = f"{PATIENCE_S:.0f}s"  # for --timeout


class Skipped(Exception):
    """This machine cannot run it: why."""


class Failed(Exception):
    pass


def wait_for(what, condition, timeout_s=None):
    """The first true value of condition(), which is asked every 20 ms."""
    end = time.monotonic() + (timeout_s or PATIENCE_S)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"did not come true in time: {what}")
        time.sleep(0.02)


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}: got {got!r}, wanted {wanted!r}")


class Process:
    def __init__(self, name, argv, log_path, **kwargs):
        self.name = name
        self.log_path = log_path
        self.log = open(log_path, "ab")
        self.ended_by_us = False
        self.popen = subprocess.Popen([str(a) for a in argv], stderr=self.log, **kwargs)

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def stop(self):
        """SIGSTOP, and until every thread has stopped: the one that takes the signal stops the
        others, and may wait for a core first."""
        self.signal(signal.SIGSTOP)

        def stopped():
            states = []
            for task in pathlib.Path(f"/proc/{self.popen.pid}/task").iterdir():
                with contextlib.suppress(OSError):  # a thread that just ended
                    states.append((task / "stat").read_text().rsplit(")", 1)[1].split()[0])
            return all(state in "TZ" for state in states)
        wait_for(f"{self.name} has stopped", stopped)

    def kill(self):
        self.ended_by_us = True
        self.signal(signal.SIGKILL)
        self.popen.wait(20)

    def died(self):
        """The signal that ended it, if it was not one of ours; 0 otherwise."""
        code = self.popen.poll()
        return -code if code is not None and code < 0 and not self.ended_by_us else 0

    def ended(self):
        """Its exit code, once it has ended."""
        return self.popen.wait(PATIENCE_S)

    def terminate(self):
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def logged(self, *words):
        """Log lines that have all the words."""
        self.log.flush()
        lines = self.log_path.read_text(errors="replace").splitlines()
        return [line for line in lines if all(w in line for w in words)]


def prefix_of_this_test():
    """Folders that begin so and processes that have it in their environment are this test's."""
    leavings.clear_orphans("tombolo-test")
    prefix = leavings.prefix_of("tombolo-test", os.getpid())
    os.environ.update([leavings.mark_of(prefix)])
    return prefix
