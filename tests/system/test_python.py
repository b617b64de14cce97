"""The ctypes module against a real gateway: what Python publishes, Python follows."""

import os
import sys

from harness import BUILD, SOURCE, Failed, expect, main, scenario

sys.path.insert(0, str(SOURCE / "python"))
os.environ.setdefault("TOMBOLO_LIBRARY", str(BUILD / "intra/client/libtombolo.so"))

WEIGHTS = ("BF16", (700, 1000))
BYTES = 700 * 1000 * 2


def expect_error(what, kind, name, call):
    try:
        call()
    except kind as error:
        expect(what, error.name, name)
        return str(error)
    raise Failed(f"{what}: nothing was raised")


@scenario
def python_publishes_and_follows(lab):
    """P1 P2: three versions from a bytearray, followed into memory of ours, a blob beside them."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, name="trainer", host="a") as trainer, tombolo.Session(gateway, name="rollout", host="b") as rollout:
        weights = bytearray(BYTES)
        run = trainer.run_open("policy", "key")
        sealed = trainer.register({"w": (*WEIGHTS, weights)})
        target = rollout.buffer(BYTES)
        subscription = rollout.subscribe("policy", registration=rollout.register({"w": (*WEIGHTS, target)}))
        expect_error("nothing there", tombolo.Again, "again", lambda: rollout.wait("policy", timeout_ms=0))
        before = None
        for number in (1, 2, 3):
            weights[:] = bytes((number * 37 + i) & 0xFF for i in range(1000)) * (BYTES // 1000)
            info = trainer.publish("policy", run, number, registration=sealed, blobs={"config.json": b'{"step":%d}' % number},
                                   codec="zstd" if number == 2 else None)
            expect("bytes", info.bytes, BYTES + 10)
            version = rollout.wait("policy", after=before, timeout_ms=30000)
            expect("number", (version.number, version.uid), (number, info.uid))
            subscription.stage(version.uid, timeout_ms=30000)
            subscription.activate(version.uid)
            expect("weights", bytes(target) == bytes(weights), True)
            items = {item.name: bytes(item.bytes) for item in subscription.items(version.uid)}
            expect("blob", items["config.json"], b'{"step":%d}' % number)
            subscription.release(version.uid)
            before = version.uid
        trainer.wait_site(before, state=tombolo.ACTIVATED, timeout_ms=30000)
        expect_error("backwards", tombolo.Error, "bad_state", lambda: trainer.publish("policy", run, 0, registration=sealed))
        expect("status", '"schema":1' in rollout.status(), True)


@scenario
def python_is_told_what_is_wrong(lab):
    """P10: an error is the library's own sentence."""
    import tombolo
    text = expect_error("no gateway", tombolo.Error, "gateway_away",
                        lambda: tombolo.Session(f"unix:{lab.dir}/nobody.sock", open_timeout_ms=200))
    expect("the sentence names it", "nobody.sock" in text, True)


if __name__ == "__main__":
    sys.exit(main())
