"""failing.py WAY: a test that fails, for test_harness.py to see what it leaves."""

import os
import signal
import subprocess
import sys

from harness import Failed, Veth, Worker, main, scenario


def full_lab(lab):
    """Gateways, a worker that stands still, a process that the lab does not know, in a session
    of its own, and devices."""
    east, west, _ = lab.east_west()
    for s in (east, west):
        s.start()
    Worker(lab, "worker", east).stop()
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@scenario
def fails(lab):
    full_lab(lab)
    raise Failed("as it should")


@scenario
def is_broken(lab):
    full_lab(lab)
    return {}["as it should"]


@scenario
def is_killed(lab):
    full_lab(lab)
    os.kill(os.getpid(), signal.SIGKILL)


@scenario
def leaves_a_process(lab):
    full_lab(lab)


@scenario
def is_skipped_half_way(lab):
    class Half(Veth):
        def address(self, site):
            return "no address"
    lab.after.enter_context(Half())


if __name__ == "__main__":
    sys.exit(main())
