#!/usr/bin/env python3
"""A short turn of tests/chaos: each of its faults once, in the order of a seed.

Environment: TB_FAULT_TURN, the seed; tests/run gives the commit's hash.

Covers: gateway/daemon/daemon.c gateway/daemon/links/lag.c gateway/daemon/persist.c
"""

import os

from chaos_world import Chaos
from harness import main, scenario


@scenario
def a_short_turn_of_chaos(lab):
    """P1 P3 P6 P10."""
    world = Chaos(lab, int(os.environ.get("TB_FAULT_TURN", "1")))
    count = len(world.faults())
    world.run(lambda turns: turns >= count)


if __name__ == "__main__":
    raise SystemExit(main())
