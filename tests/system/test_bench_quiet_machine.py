"""A round of bench/run counts only on a quiet machine. No real measurement is taken.

Covers: bench/quiet_machine.py bench/measuring.py
"""

import os
import subprocess
import sys

from bench_quiet import Quiet, check, run_all
import keys
import measuring
import quiet_machine


class Machine:
    """Says of each round what a list has for it; None: it counts."""

    def __init__(self, *whys):
        self.whys = iter(whys)

    def begin(self, floor=True):
        pass

    def why_void(self):
        return next(self.whys, None)


def filled(ours, *whys):
    def measured(bench):
        for a in ours:
            yield {"shm.hop": (a, 1)}
    measured.memory = True
    bench = Quiet()
    bench.machine = Machine(*whys)
    result = measuring.Result(keys.BY_NAME["shm.hop"])
    measuring.fill(bench, measured, [result])
    return result


def void_rounds_are_made_up_for():
    result = filled([10, 10, 99, 10, 10, 10], None, None, "cc1 used 80 % of a core")
    check(f"three others: {result}", result.pairs == [(10, 1)] * 3 and result.void == 1)
    check("and the report says so", result.as_json()["void"] == 1)


def after_ten_void_rounds_a_key_is_not_measured():
    result = filled([10] * 30, *["memcpy moved by -20% across it"] * 20)
    check(f"no number, but a reason: {result}", result.pairs == [] and result.void == 10 and not result.failed)
    check("the last one", "memcpy moved" in result.why_skipped)


def rounds_count_once_two_agree():
    result = filled([5, 7, 10, 10.2, 30, 10])
    check(f"from the third on: {result}", [a for a, _ in result.pairs] == [10, 10.2, 30])
    result = filled([1, 2, 4, 8, 16, 32, 64, 128, 256])
    check(f"with the sixth at the latest: {result}", [a for a, _ in result.pairs] == [16, 32, 64])


def another_process_at_work_is_named():
    """One that works on until it is seen: the kernel counts its time in ticks."""
    before = quiet_machine.processes()
    worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        def seen(own):
            return quiet_machine.busiest(before, {key: row for key, row in quiet_machine.processes().items()
                                                  if key[0] in (worker.pid, os.getpid()) or key not in before}, own)
        while seen(own=-1)[1] == 0:
            pass
        check("a child is no stranger", worker.pid not in {pid for pid, _ in quiet_machine.strangers(
            quiet_machine.processes(), os.getpid())})
        check("but it is one to others", worker.pid in {pid for pid, _ in quiet_machine.strangers(
            quiet_machine.processes(), worker.pid + 1)})
    finally:
        worker.kill()
        worker.wait()


if __name__ == "__main__":
    run_all(void_rounds_are_made_up_for, after_ten_void_rounds_a_key_is_not_measured,
            rounds_count_once_two_agree, another_process_at_work_is_named)
