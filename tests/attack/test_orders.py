"""Well-formed frames in any order, about versions that are there, of a peer and a worker with
right certificates: the gateway answers, refuses or ends the connection, and lives (P7, P8).

Its own asserts are on, and where it was built with TB_CHECK_TURNS all its tables are checked after
each turn of its loop. The orders are the same in each run.

Covers: wan/link/traffic/link_versions.c wan/link/traffic/link_landings.c wan/link/traffic/link_push.c
Covers: wan/link/traffic/link_state.c wan/link/traffic/link_runs.c gateway/daemon/links/link_events.c
Covers: gateway/daemon/sessions/session_follow.c gateway/daemon/sessions/session_publish.c
"""

import contextlib
import os
import pathlib
import random
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from broken import broken  # noqa: E402
from certificates import URI  # noqa: E402
from forger import east_of, greeted  # noqa: E402
from harness import Failed, Trainer, expect, main, scenario, wait_for  # noqa: E402
from hostile import SESSION_HELLO, WELCOME, Connection, Ended, frame, session_hello, span, text, tls  # noqa: E402
from tally import tally  # noqa: E402

INPUTS, BURST, BROKEN_IN_100 = 1200, 40, 7


class Chance(random.Random):
    def few(self, most):
        return self.randrange(most)

    def id(self):
        return self.randbytes(16)

    def u32s(self, *choices):
        return struct.pack("<I", self.choice(choices))

    def u64s(self, *choices):
        return struct.pack("<Q", self.choice(choices))

    def words(self):
        return span(struct.pack("<IQ", self.choice((0, 0, 1, 2, 9)), self.getrandbits(64)))


def published(lab, east, count=3):
    """The uids of versions of policy that east holds; a rank of its own publishes them."""
    paths = lab.weights(count)
    trainer = Trainer(lab, east, paths[0])
    uids = [trainer.publish(number, path) for number, path in enumerate(paths, 1)]
    for uid in uids:
        east.wait_holds(uid)
    return [bytes.fromhex(uid) for uid in uids]


def views(site):
    """All that people ask of it."""
    for model in ("policy", "theirs"):
        site.control("lag", model=model)
        site.control("versions", model=model)
    site.control("status")


def orders(site, what, opened, frames, seed):
    """Sends frames until INPUTS are sent, over as many connections as that takes."""
    chance, sent, connections = Chance(seed), 0, 0
    while sent < INPUTS:
        with opened() as connection, contextlib.suppress(Ended):
            connections += 1
            for _ in range(BURST):
                kind, payload, request = frames(chance)
                right = chance.few(100) >= BROKEN_IN_100
                connection.send(frame(kind, payload, request=request) if right else broken(chance, kind, payload))
                sent += 1
                if chance.few(50) == 0:
                    views(site)
            connection.socket.settimeout(0.02)
            while True:
                connection.read(1)
        if not site.daemon.alive():
            raise Failed(f"the gateway died after {sent} frames")
    views(site)
    tally(f"frames in any order, {what}", sent, more=f", {connections} connections")


def key_of(chance, uid, model):
    return uid + text(model) + chance.id() + chance.u64s(1, 2, 2**40) + chance.u64s(0, 1, 8) + chance.u32s(1, 2) + chance.id()


def state_of(chance, uids):
    held = b"".join(uid + struct.pack("<QQQQB", 1, number, 100, chance.choice((0, 50, 100)), chance.choice((0, 1, 3, 7)))
                    for number, uid in reversed(list(enumerate(uids, 1))))
    return (text(chance.choice(("west", "north", "south"))) + text(chance.choice(("policy", "theirs"))) + bytes([chance.few(3)]) + chance.u64s(0, 1, 9) +
            chance.u64s(0, 1, 99) + bytes([chance.few(2)]) + struct.pack("<H", chance.few(40)) + chance.u64s(0, 10**6) + chance.u64s(0, 1) + chance.u64s(0, 3) +
            chance.u64s(0, 1) + chance.u64s(0, 3) + chance.u32s(0, 4) + chance.u64s(0, 2**30) + chance.u64s(5) + chance.u64s(1) + chance.u64s(9) + span(held))


def peers_frame(chance, uids):
    """One of all kinds of frames that a peer may send: docs/protocol.md, section 2."""
    uid, crossing, other = chance.choice(uids), chance.u32s(1, 2, 3, 4), chance.choice([*uids, chance.id()])
    return (*chance.choice([
        (9, uid), (12, crossing + uid), (14, crossing), (13, crossing + chance.u32s(0, 1, 2) + chance.words()), (15, crossing),
        (16, crossing + chance.u32s(0) + chance.u32s(*range(8)) + bytes([1 + chance.few(4)])), (17, uid), (22, crossing + chance.choice(uids)),
        (19, uid + text(chance.choice(("west", "north", "south", "east"))) + bytes([1 + chance.few(2)])), (23, chance.u32s(1, 4, 64)),
        (24, crossing + chance.u32s(0) + chance.words()), (26, chance.u32s(*range(1, 50)) + text("policy") + chance.choice(uids)),
        (27, chance.u32s(*range(1, 9)) + other), (7, key_of(chance, other, chance.choice(("policy", "theirs"))) + chance.u64s(100, 2**40) + bytes([1 + chance.few(2)])),
        (5, text("theirs") + text("west")), (5, text("policy") + text(chance.choice(("east", "west")))), (6, text(chance.choice(("policy", "theirs")))),
        (8, other + chance.u32s(401, 404, 102)), (10, other + chance.u32s(0, 1) + chance.u32s(60, 200) + chance.u32s(0) + span(chance.randbytes(60))),
        (11, other + chance.u32s(0) + chance.u32s(0, 1) + span(chance.randbytes(32))), (29, text(chance.choice(("theirs", "policy")))),
        (30, text(chance.choice(("theirs", "policy"))) + chance.u64s(0, 1, 5, 2**30) + chance.u64s(0, 4) + chance.id()), (28, bytes([chance.few(2)])),
        (33, bytes([chance.few(6)])), (37, chance.u32s(536, 1400, 65495)), (32, state_of(chance, uids)), (18, chance.u32s(1, 2)), (38, span(chance.randbytes(chance.choice((1, 90, 700))))), (3, chance.u64s(7)), (4, chance.u64s(7)),
    ]), 0)


@scenario
def any_order_of_a_peers_frames(lab):
    """P7 P8: a site that follows policy and is home of theirs."""
    forger, east = east_of(lab)
    me = f"unix:{os.getuid()}"
    for model, home in (("policy", "east"), ("theirs", "west")):
        east.models[model] = dict(home=home, publish=[me], read=["tombolo://west/*", me], keep=4)
    east.subscribe.append(("theirs", ["west"]))
    east.peer_keys["west"] = {"unsigned": "true"}  # so that versions without a signature get on, and what follows them is tried
    east.start()
    uids = published(lab, east)

    def opened():
        connection = wait_for("west is greeted", lambda: greeted((lab.address, east.port), forger))
        connection.send(frame(5, text("policy") + text("east")))
        return connection
    orders(east, "peer", opened, lambda chance: peers_frame(chance, uids), 2)


def workers_frame(chance, uids):
    """One of all kinds of frames that a worker may send: intra/session_msg.h."""
    uid, other, subscription = chance.choice(uids), chance.choice([*uids, chance.id()]), chance.u32s(1, 2)
    model, status = text(chance.choice(("policy", "theirs"))), struct.pack("<i", chance.choice((0, -101, -304, -401)))
    return (*chance.choice([
        (4, b""), (5, model + text(chance.choice(("", "k", "k2"))) + bytes([chance.few(2)]) + chance.u64s(0, 1)),
        (7, model + chance.id() + chance.u64s(0, 1, 9) + chance.u32s(1, 2)), (10, uid + chance.u32s(0, 1, 0xffffffff) + chance.u32s(0, 10)),
        (9, other + chance.u32s(0, 1) + bytes([chance.few(2)]) + chance.u64s(1, 2) + bytes([chance.few(2)]) + span(chance.randbytes(90)) + span(chance.randbytes(32)) +
         span(chance.randbytes(40)) + bytes(16) + span(b"") + span(chance.randbytes(chance.few(2) * 30))),
        (11, subscription + model + text(chance.choice(("g", "h"))) + chance.u32s(0, 1) + chance.u32s(1, 2) + chance.choice((bytes(16), other)) + chance.u64s(0, 1) + chance.u64s(0, 3) +
         span(chance.randbytes(chance.few(2) * 30))),
        (12, subscription), (13, bytes([chance.few(4)]) + model + chance.u64s(0, 1) + chance.u64s(0, 2) + bytes(16) + chance.u32s(0, 20)),
        (14, uid + text(chance.choice(("", "west", "south"))) + bytes([chance.few(3)]) + chance.u32s(0, 20)), (15, chance.u64s(1, 5)), (16, subscription + other),
        (19, other + chance.u64s(0, 1, 7) + chance.u32s(0, 3) + bytes([chance.few(2)]) + span(chance.randbytes(40))), (22, chance.id() + status),
        (23, other + chance.u64s(0, 1) + status), (24, other + chance.u64s(0, 1) + chance.u32s(0, 1) + chance.u32s(0, 3) + bytes([chance.few(2)])),
        (25, other + chance.u32s(0, 3) + chance.u32s(1, 9) + bytes([chance.few(2)]) + chance.u64s(0, 10**9) + bytes([chance.few(256)])), (27, subscription + other),
        (28, subscription + other + chance.u64s(0, 1) + chance.u64s(0, 3) + chance.u64s(5) + chance.u64s(0, 10)), (29, other), (31, text(chance.choice(("session", "", "x")))),
        (33, subscription + other + bytes([chance.few(6)]) + chance.u64s(5) * 4 + chance.u32s(0, 2)), (35, other + chance.u32s(0, 1) + chance.u32s(0, 3) + bytes([chance.few(7)])),
    ]), chance.choice((0, 1, 2, 3)))


@scenario
def any_order_of_a_workers_frames(lab):
    """P7 P8: a worker that may publish and read policy."""
    forger, east = east_of(lab)
    me, w0 = f"unix:{os.getuid()}", "tombolo://east/worker/w0"
    for model, home in (("policy", "east"), ("theirs", "west")):
        east.models[model] = dict(home=home, publish=[me, w0], read=[me, w0], keep=4)
    east.start()
    forger.east.issue("w0", (URI, w0.encode()))
    context = tls(forger.east.folder / "ca.crt", forger.east.folder / "w0.crt", forger.east.key)
    uids = published(lab, east)

    def opened():
        connection = Connection((lab.address, east.worker_port), context)
        connection.send(frame(SESSION_HELLO, session_hello(), request=1))
        expect("w0 is welcome", connection.answer(), WELCOME)
        return connection
    orders(east, "worker", opened, lambda chance: workers_frame(chance, uids), 3)


if __name__ == "__main__":
    sys.exit(main())
