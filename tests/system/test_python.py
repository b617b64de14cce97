"""The ctypes module against a real gateway: what Python publishes, Python follows."""

import ctypes
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


class OnGpu:
    """What torch says of a tensor on a GPU; the bytes are the host's, which the library finds out from the driver, or from there being none."""
    is_cuda = True

    def __init__(self, memory, contiguous=True):
        self.memory, self.contiguous = memory, contiguous

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def numel(self):
        return len(self.memory) // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous


@scenario
def python_publishes_and_follows(lab):
    """P1 P2: three versions from a bytearray behind a tensor's face, followed into memory of ours, a blob beside them."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, name="trainer", host="a") as trainer, tombolo.Session(gateway, name="rollout", host="b") as rollout:
        weights = bytearray(BYTES)
        run = trainer.run_open("policy", "key")
        sealed = trainer.register({"w": (*WEIGHTS, OnGpu(weights))})
        for wrong in (OnGpu(weights, contiguous=False), OnGpu(bytearray(BYTES - 2))):
            try:
                trainer.register({"w": (*WEIGHTS, wrong)})
                raise Failed("a wrong tensor was registered")
            except ValueError as error:
                expect("named", "w: " in str(error), True)
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
