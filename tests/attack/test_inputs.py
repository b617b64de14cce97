"""Frames of a peer and of a worker with right certificates, each broken in one way: the gateway ends the connection or does what a right one would do, and lives.

The seeds are real frames (tests/unit/wan/recorded_frames_2.txt, tests/fuzz/corpus). Each run breaks them in the same ways.

Covers: wan/link/session/link_frames.c gateway/daemon/sessions/sessions.c base/message.c
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
from forger import east_of, greeted, honest_link  # noqa: E402
from harness import SOURCE, Failed, expect, main, scenario, wait_for  # noqa: E402
from hostile import REPLY, SESSION_HELLO, SUBSCRIBE, WELCOME, Connection, Ended, frame, session_hello, text, tls  # noqa: E402
from tally import tally  # noqa: E402

LINK_INPUTS, SESSION_INPUTS = 600, 600
MEMORY_MAX = 96 << 20  # that the gateway may grow by


def link_seeds():
    """[(type, payload)] of control frames."""
    seeds = []
    for line in (SOURCE / "tests/unit/wan/recorded_frames_2.txt").read_text().splitlines() + (
            SOURCE / "tests/unit/wan/recorded_frames_1.txt").read_text().splitlines():
        name, data = line.split()
        if name != "chunk":
            data = bytes.fromhex(data)
            seeds.append((struct.unpack_from("<IH", data)[1], data[16:]))
    return seeds + [(kind, b"") for kind in range(0, 40)]


SESSION_TYPES = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24)  # of the messages in the order of tests/fuzz/session.c


def session_seeds():
    seeds = []
    for path in sorted((SOURCE / "tests/fuzz/corpus/session").iterdir()):
        data = path.read_bytes()
        if data and data[0] < len(SESSION_TYPES):
            seeds.append((SESSION_TYPES[data[0]], data[1:]))
    return seeds + [(kind, b"") for kind in range(0, 36)]


def resident(site):
    return int(pathlib.Path(f"/proc/{site.daemon.popen.pid}/statm").read_text().split()[1]) * 4096


def attack(site, opened, seeds, count, seed):
    """Sends `count` broken frames over as many connections as they take; the connections that ended."""
    chance, sent, ended = random.Random(seed), 0, 0
    while sent < count:
        with opened() as connection, contextlib.suppress(Ended):
            for _ in range(1 + chance.randrange(8)):
                connection.send(broken(chance, *chance.choice(seeds)))
                sent += 1
            connection.socket.settimeout(0.01)  # what was garbled ends it at once or soon
            while sent < count:
                connection.read(1)
        ended += 1
        if not site.daemon.alive():
            raise Failed(f"the gateway died after {sent} inputs")
    return ended


def survived(site, before, what, count, ended):
    grown = resident(site) - before
    tally(f"broken frames, {what}", count, memory=grown, more=f", {ended} connections")
    if grown > MEMORY_MAX and "TB_SANITIZED" not in os.environ:  # a sanitizer keeps memory that was freed
        raise Failed(f"the gateway grew by {grown >> 20} MiB")
    expect("it answers", site.control("status")["ok"], True)


@scenario
def broken_frames_of_a_peer(lab):
    """P7: whatever a right peer says, the gateway lives, keeps its memory, and greets that peer again."""
    forger, east = east_of(lab)
    east.start()
    to = (lab.address, east.port)
    honest_link(forger, to)[0].__exit__()
    before = resident(east)

    def opened():
        return wait_for("west is greeted", lambda: greeted(to, forger))
    ended = attack(east, opened, link_seeds(), LINK_INPUTS, 7)
    survived(east, before, "link", LINK_INPUTS, ended)
    opened().__exit__()


@scenario
def broken_frames_of_a_worker(lab):
    """P7: whatever a right worker says, the gateway lives, keeps its memory, and welcomes that worker again."""
    forger, east = east_of(lab)
    east.models["policy"]["publish"] = ["tombolo://east/worker/w0"]
    east.start()
    to = (lab.address, east.worker_port)
    forger.east.issue("w0", (URI, b"tombolo://east/worker/w0"))
    context = tls(forger.east.folder / "ca.crt", forger.east.folder / "w0.crt", forger.east.key)

    def opened():
        connection = Connection(to, context)
        connection.send(frame(SESSION_HELLO, session_hello(), request=1))
        expect("w0 is welcome", connection.answer(), WELCOME)
        return connection
    opened().__exit__()
    before = resident(east)
    ended = attack(east, opened, session_seeds(), SESSION_INPUTS, 11)
    survived(east, before, "session", SESSION_INPUTS, ended)
    with opened() as connection:
        connection.send(frame(SUBSCRIBE, struct.pack("<I", 1) + text("policy") + text("g2") + struct.pack("<II", 0, 1) + bytes(36), request=2))
        expect("a right request is answered", connection.answer(), REPLY)


if __name__ == "__main__":
    sys.exit(main())
