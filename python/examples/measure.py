"""The cost of the package: its import, and publish and activate of 1 GB beside the same calls without it.

    python measure.py unix:/run/tombolo/session.sock [MB]

"through C" are the calls of tombolo.h alone, as a C program makes them (Session); "through Python" are
publish() and follow(). Each is the best of ROUNDS, in turns, after one round that makes memory. The
gateway has the model `policy`, and an arena for four versions."""

import array
import subprocess
import sys
import time

import tombolo

ROUNDS = 5


def import_ms() -> float:
    """CPU time, as other work on the machine does not count; less that of Python itself."""
    words = "import time; a = time.process_time(); import tombolo; print(time.process_time() - a)"
    return min(float(subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout) for _ in range(5)) * 1000


def timed(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main(gateway: str, megabytes: str = "1000") -> None:
    print(f"import tombolo: {import_ms():.1f} ms of CPU time")
    each = int(megabytes) * 1_000_000 // 64
    tensors = {f"layer.{i}": array.array("B", bytes(each)) for i in range(64)}
    replica = {f"layer.{i}": array.array("B", bytes(each)) for i in range(64)}
    best = {"publish": [1e9, 1e9], "activate": [1e9, 1e9]}
    with tombolo.Publisher("policy", gateway=gateway, run="measure", host="here") as publisher, \
            tombolo.Follower("policy", replica, gateway=gateway, host="here") as reader:
        publisher.publish(0, tensors)
        reader.next()
        session, run, sealed, subscription = publisher._session, publisher._run, publisher._registration, reader._subscription
        for step in range(1, 2 * ROUNDS + 1):
            for tensor in tensors.values():
                tensor[step] = step  # each chunk changes
            python = step % 2
            publish = timed((lambda: publisher.publish(step, tensors)) if python else
                            (lambda: session.publish("policy", run, step, registration=sealed)))
            uid = reader.stage(step).uid
            activate = timed(reader.apply if python else lambda: subscription.activate(uid))
            if not python:
                reader.apply()  # what it notes; the tensors are as they are
            for what, took in (("publish", publish), ("activate", activate)):
                best[what][python] = min(best[what][python], took)
    for what, (c, python) in best.items():
        print(f"{what} of {megabytes} MB: {python * 1000:.1f} ms through Python, {c * 1000:.1f} ms through C, {python / c:.3f} times")


if __name__ == "__main__":
    main(*sys.argv[1:])
