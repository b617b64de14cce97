"""The loss of an honest link to each attack: the pace of versions from east to west under it, as a part of
their pace alone.

    TB_BUILD_DIR=build/release python3 tests/attack/goodput.py [--mib 64] [--rounds 5] [--rate 400Mbit]
                                                               [--only WORD] [--json]

East is the home, west an honest follower. The attacker has right certificates of the peer north and of the
worker w0, or none. Each round measures every attack between two measurements of the link alone, and the
ratio is the median over the rounds of attacked / mean of the two. An attack sends what it can in a process
of its own, on the same cores: what it costs is in the ratio, too. So the link has a rate (400Mbit), as one
over a WAN has: with `--rate none` the link wants all cores, and the ratio says how many the attacker took.
Nothing is asserted. Goal on a quiet machine: 0.8 or more. attack.summary shows what was measured last of
this build."""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from broken import broken  # noqa: E402
from claims import EXPORT  # noqa: E402
from certificates import URI  # noqa: E402
from forger import Forger, honest_link  # noqa: E402
from forging_relay import ForgingRelay  # noqa: E402
from harness import Failed, Lab, Trainer, leavings, prefix_of_this_test, safetensors, wait_for  # noqa: E402
from hostile import (HELLO, SESSION_HELLO, SUBSCRIBE, Connection, Ended, frame, link_hello, session_hello, span, text,  # noqa: E402
                     tls)
from sayings import VERSION, Key, sealed, statement  # noqa: E402
from tally import note  # noqa: E402
from test_holders import RUN_OPEN, UNSUBSCRIBE, report, state_of  # noqa: E402
from test_inputs import link_seeds, session_seeds  # noqa: E402

F_VERSION, F_STATEMENT, WAIT = 7, 38, 13
FRAMES_A_SECOND = 5000  # of one attacker: more keeps its own interpreter busy, and no gateway


def paced(count_a_second):
    """Yields at most so often."""
    began, count = time.monotonic(), 0
    while True:
        if count > (time.monotonic() - began) * count_a_second:
            time.sleep(0.002)
            continue
        count += 1
        yield count


class Pair:
    """East and west, and the keys that the attacker has."""

    def __init__(self, lab, mib, rate):
        self.lab, self.forger = lab, Forger(lab)
        self.east, self.west = lab.site("east"), lab.site("west")
        me = f"unix:{os.getuid()}"
        for site in (self.east, self.west):
            readers = [me, "tombolo://west/*", "tombolo://north/*", "tombolo://east/worker/*"]
            site.models["policy"] = dict(home="east", publish=[me], read=readers)
            site.extra["link"] = {"codec": "raw"}
            site.arena_mib = 5 * mib + 64
        self.east.peers.update(west=None, north=None)
        self.west.peers["east"] = f"{lab.address}:{self.east.port}"
        self.west.peers["north"] = None
        self.west.subscribe.append(("policy", ["east", "north"]))
        self.east.extra["session"] = {"listen": f"{lab.address}:{self.east.worker_port}"}
        self.link, self.session = (lab.address, self.east.port), (lab.address, self.east.worker_port)
        self.follower = (lab.address, self.west.port)
        self.forger.east.issue("w0", (URI, b"tombolo://east/worker/w0"))
        self.east.start()
        self.west.start()
        self.west.wait_link("east")
        if rate != "none":
            self.east.cli("limit", "west", "--rate", rate)
        self.paths = [lab.dir / f"{i}.safetensors" for i in range(2)]
        for path in self.paths:  # two halves of which nothing is alike
            tensors = {name: ("U8", [mib << 19], os.urandom(mib << 19)) for name in ("a", "b")}
            safetensors(path, tensors)
        self.trainer, self.number, self.bytes = Trainer(lab, self.east, self.paths[0]), 0, mib << 20
        self.publish()

    def publish(self):
        """Bytes a second of one version, from its publication until west holds it."""
        self.number += 1
        for i, rank in enumerate(self.trainer.ranks):
            rank.ok("fill", tensors=self.trainer.rows[i], file=str(self.paths[self.number % 2]))
        began = time.monotonic()
        self.uid = uid = self.trainer.publish(self.number)
        self.trainer.ranks[0].ok("wait_site", uid=uid, site="west", state=0, timeout_ms=120000)
        return self.bytes / (time.monotonic() - began)

    def worker_tls(self):
        folder = self.forger.east.folder
        return tls(folder / "ca.crt", folder / "w0.crt", self.forger.east.key)

    def opened_session(self):
        connection = Connection(self.session, self.worker_tls())
        connection.send(frame(SESSION_HELLO, session_hello(), request=1))
        connection.receive()
        connection.socket.settimeout(1)
        return connection

    def opened_link(self):
        connection = honest_link(self.forger, self.link, "north")[0]
        connection.socket.settimeout(1)
        return connection


def sends(pair, opened, next_frame):
    """Frames over as many connections as they take, what is answered is read."""
    def again():
        with contextlib.suppress(Ended, Failed, OSError, struct.error), opened() as connection:
            for _ in paced(FRAMES_A_SECOND):
                connection.send(next_frame())
                connection.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError, OSError):
                    while connection.socket.recv(1 << 16):
                        pass
                connection.socket.settimeout(1)
    for _ in paced(50):
        again()


def strangers(pair):
    kept = []
    for _ in paced(3000):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(pair.link)
        kept.append(one)
        if len(kept) > 400:
            kept.pop(0).close()


def handshakes(pair):
    """With a certificate of a CA that nobody trusts."""
    path = pair.forger.other.issue("stranger", (URI, b"tombolo://west/gw"))
    context = tls(pair.forger.west.folder / "ca.crt", path, pair.forger.other.key)
    for _ in paced(500):
        with contextlib.suppress(Ended, OSError), Connection(pair.link, context) as connection:
            connection.read(1)


def partial_frames(pair):
    """Frames of 64 MiB that begin and do not end."""
    sends(pair, pair.opened_session, lambda: struct.pack("<IHHQ", 64 << 20, SUBSCRIBE, 0, 2) + bytes(1 << 16))


def broken_peer(pair):
    chance, seeds = random.Random(7), link_seeds()
    sends(pair, pair.opened_link, lambda: broken(chance, *chance.choice(seeds)))


def broken_worker(pair):
    chance, seeds = random.Random(11), session_seeds()
    sends(pair, pair.opened_session, lambda: broken(chance, *chance.choice(seeds)))


def waits(pair):
    payload = struct.pack("<B", 2) + text("policy") + bytes(32) + struct.pack("<I", 2**32 - 1)
    sends(pair, pair.opened_session, lambda: frame(WAIT, payload, request=2))


def denied(pair):
    payload = struct.pack("<I", 1) + text("another") + text("g") + struct.pack("<II", 0, 1) + bytes(36)
    sends(pair, pair.opened_session, lambda: frame(SUBSCRIBE, payload, request=2))


def invented_versions(pair):
    sends(pair, pair.opened_link, lambda: frame(F_VERSION, Key(1, order=2**62).frame()))


def forged_statements(pair):
    key = Key(2**40)
    north = pair.forger.north
    said = frame(F_STATEMENT, sealed(statement(VERSION, key), north.folder / "gw.crt", north.key))
    sends(pair, pair.opened_link, lambda: said)


def forged_chunks(pair):
    """West asks this relay for chunks, too. It is a source no more after some, and comes back."""
    for _ in paced(5):
        with contextlib.suppress(Ended, Failed, OSError, struct.error):
            relay = ForgingRelay(pair.forger, "north", pair.link, pair.follower, "policy", "east")
            with contextlib.closing(relay):
                relay.run()


def claimed_holdings(pair):
    """Of the newest version, by a reader that holds nothing of it."""
    said = frame(EXPORT, bytes.fromhex(pair.uid) + struct.pack("<QIB", 1, 2**20, 1) + span(b""))
    sends(pair, pair.opened_session, lambda: said)


def reports(pair):
    """Of sites that are others, or that do not exist."""
    raw, names = bytes.fromhex(pair.uid), itertools.cycle(["west", *(f"made-up-{i}" for i in range(60))])

    def said():
        name = next(names)
        return report(name, 1, raw) + report(name, 2, raw) + state_of(name, 1, raw)
    sends(pair, pair.opened_link, said)


def claimed_numbers(pair):
    """A member that computes from number 2^64 - 1, and leaves."""
    payload = (struct.pack("<I", 1) + text("policy") + text("g") + struct.pack("<II", 0, 1) + os.urandom(16) +
               struct.pack("<QQ", 1, 2**64 - 1) + span(b""))
    said = frame(SUBSCRIBE, payload, request=2) + frame(UNSUBSCRIBE, struct.pack("<I", 1), request=3)
    sends(pair, pair.opened_session, lambda: said)


def runs_of_another(pair):
    said = frame(RUN_OPEN, text("policy") + text("mine") + bytes([0]) + bytes(8), request=2)
    sends(pair, pair.opened_session, lambda: said)


def incarnations(pair):
    north = pair.forger.north
    context = tls(north.folder / "ca.crt", north.folder / "gw.crt", north.key)
    for count in paced(500):
        with contextlib.suppress(Ended, OSError), Connection(pair.link, context) as connection:
            connection.send(frame(HELLO, link_hello("north", incarnation=2**64 - count)))
            connection.answer()


ATTACKS = {"strangers connect": strangers, "handshakes of a strange CA": handshakes,
           "frames that do not end": partial_frames, "broken frames of a peer": broken_peer,
           "broken frames of a worker": broken_worker, "waits without an end": waits, "denied requests": denied,
           "invented versions": invented_versions, "forged statements": forged_statements,
           "forged chunks of a relay": forged_chunks, "holdings that a reader claims": claimed_holdings,
           "reports about other sites": reports, "numbers that a member claims": claimed_numbers,
           "runs over that of another": runs_of_another, "incarnations near the end": incarnations}


@contextlib.contextmanager
def under(attack, pair):
    process = multiprocessing.get_context("fork").Process(target=attack, args=(pair,), daemon=True)
    process.start()
    time.sleep(0.3)  # it is under way: nothing depends on how far
    try:
        yield
        if process.exitcode is not None:
            raise Failed(f"the attack ended by itself, with code {process.exitcode}")
    finally:
        process.kill()
        process.join()


def measure(pair, rounds, only):
    """{attack: [(alone, under it)]}, bytes a second."""
    found = {}
    for _ in range(rounds):
        before = pair.publish()
        for what, attack in ATTACKS.items():
            if only not in what:
                continue
            with under(attack, pair):
                attacked = pair.publish()
            wait_for("the gateway lives", pair.east.daemon.alive)
            after = pair.publish()
            found.setdefault(what, []).append(((before + after) / 2, attacked))
            before = after
    return found


def main():
    parser = argparse.ArgumentParser(prog="tests/attack/goodput.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="of a version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", default="400Mbit", help="of the link, or none")
    parser.add_argument("--only", default="", help="attacks that have this word")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    leavings.watch(os.getpid(), prefix_of_this_test())  # should it be killed, nothing of it stays
    with Lab() as lab:
        found = measure(Pair(lab, options.mib, options.rate), options.rounds, options.only)
    rows = {what: {"ratio": round(statistics.median(u / a for a, u in pairs), 3),
                   "alone_mib_s": round(statistics.median(a for a, _ in pairs) / 2**20, 1),
                   "attacked_mib_s": round(statistics.median(u for _, u in pairs) / 2**20, 1),
                   "rounds": len(pairs)} for what, pairs in found.items()}
    note("goodput", scenario="goodput", goodput=rows)
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'attack':28} {'alone MiB/s':>12} {'under it':>9} {'ratio':>6}")
    for what, row in rows.items():
        print(f"{what:28} {row['alone_mib_s']:12} {row['attacked_mib_s']:9} {row['ratio']:6}")
    print(f"load when it ended: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
