"""The VM lab: what is measured inside of it asks here, and what it takes itself is a key."""

import json
import subprocess

import harness
import keys
from measuring import Skip, measurement

BOUND_S = 15.0  # around a command


def in_the_vm(timeout_s, *command, hosts=1):
    """The words of sim/vm/run about that command."""
    done = subprocess.run([str(keys.ROOT / "sim/vm/run"), "--json", "--hosts", str(hosts), "--timeout", str(timeout_s), "--", *command],
                          capture_output=True, text=True, check=False, timeout=timeout_s + 60)
    answer = json.loads(done.stdout)
    if "why_skipped" in answer:
        raise Skip(f"sim/vm/run: {answer['why_skipped']}")
    return answer


def around(bench, key, hosts):
    for _ in range(bench.rounds):
        answer = in_the_vm(200, "true", hosts=hosts)
        if answer["around_s"] is None or answer["code"] != 0:
            raise harness.Failed(f"the lab ran no command: {answer}")
        yield {key: (answer["around_s"], BOUND_S)}


@measurement("vm.around")
def around_one(bench):
    yield from around(bench, "vm.around", 1)


@measurement("vm.around.hosts2")
def around_two(bench):
    yield from around(bench, "vm.around.hosts2", 2)
