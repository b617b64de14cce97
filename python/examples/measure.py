"""What the package costs: its import, and publish and activate of 1 GB beside the same calls without it.

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


def through_c(sessions, step):
    """[publish seconds, activate seconds] by the calls of tombolo.h."""
    trainer, run, sealed, reader, subscription = sessions
    begin = time.perf_counter()
    info = trainer.publish("policy", run, step, registration=sealed)
    published = time.perf_counter() - begin
    subscription.stage(info.uid)
    stall = subscription.activate(info.uid).stall_ns / 1e9
    subscription.release(info.uid)
    return published, stall


def through_python(publisher, reader, tensors, step):
    begin = time.perf_counter()
    publisher.publish(step, tensors)
    published = time.perf_counter() - begin
    reader.stage(step)
    begin = time.perf_counter()
    reader.apply()
    return published, time.perf_counter() - begin


def main(gateway: str, megabytes: str = "1000") -> None:
    print(f"import tombolo: {import_ms():.1f} ms of CPU time")
    each = int(megabytes) * 1_000_000 // 64
    tensors = {f"layer.{i}": array.array("B", bytes(each)) for i in range(64)}
    replica = {f"layer.{i}": array.array("B", bytes(each)) for i in range(64)}
    best = {"C": [1e9, 1e9], "Python": [1e9, 1e9]}
    for way, step_of in (("C", lambda n: n), ("Python", lambda n: n + ROUNDS + 1)):
        with tombolo.Publisher("policy", gateway=gateway, run=way, host="here") as publisher, \
                tombolo.Follower("policy", replica, gateway=gateway, host="here") as reader:
            sealed = None
            sessions = publisher._session, publisher._run, None, reader._session, reader._subscription
            for n in range(ROUNDS + 1):
                for name, tensor in tensors.items():
                    tensor[n] = n + 1  # each chunk changes
                if way == "C":
                    sealed = sealed or publisher._session.register(tensors)
                    took = through_c((*sessions[:2], sealed, *sessions[3:]), step_of(n))
                else:
                    took = through_python(publisher, reader, tensors, step_of(n))
                if n > 0:
                    best[way] = [min(old, new) for old, new in zip(best[way], took)]
    for i, what in enumerate(("publish", "activate")):
        c, python = best["C"][i], best["Python"][i]
        print(f"{what} of {megabytes} MB: {python * 1000:.1f} ms through Python, {c * 1000:.1f} ms through C, {python / c:.3f} times")


if __name__ == "__main__":
    main(*sys.argv[1:])
