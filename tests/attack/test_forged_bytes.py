"""A relay with a right certificate serves other bytes than the publisher sealed, with the same XXH3 (P1).

North publishes. The attacker is west: it has what a relay has of the version, and serves it to east. Before chunks had
proofs, east held the forged bytes, said that it held the whole version, and gave them to its readers.

Covers: gateway/daemon/links/proofs.c gateway/daemon/links/publisher_words.c wan/link/traffic/link_manifest.c wan/link/traffic/link_manifest_pages.c
"""

import hashlib
import mmap
import os
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from forger import Forger, honest_link  # noqa: E402
from harness import Trainer, expect, main, read_and_compare, safetensors_table, scenario, wait_for  # noqa: E402
from hostile import BIND, BOUND, PING, PONG, Connection, bind, frame, text, tls  # noqa: E402
from same_digest import forged  # noqa: E402
from tally import tally  # noqa: E402
from weight_files import made  # noqa: E402

SUBSCRIBE, VERSION, ASK, HEAD, DIGESTS, WANT, HELD, START, REFUSED, STATEMENT, PROOFS = 5, 7, 9, 10, 11, 12, 13, 14, 16, 38, 39
CHUNK = struct.Struct("<IBBBBIIIII")  # of a data stream: crossing, shard and chunk are fields 5 to 7
FORGED_BYTES = 64 * 1024  # of each chunk: more takes this program more time


class Link:
    """A control stream and a data stream to a gateway, as west."""

    def __init__(self, relay, site):
        self.to = relay.lab.address, site.port
        west = relay.forger.west
        self.context = tls(west.folder / "ca.crt", west.folder / "gw.crt", west.key)
        self.control, session = honest_link(relay.forger, self.to)
        self.data = Connection(self.to, self.context)
        self.data.send(frame(BIND, bind(session)))
        expect("the data stream is bound", self.data.answer(), BOUND)

    def say(self, kind, payload):
        self.control.send(frame(kind, payload))

    def next(self):
        while True:
            kind, payload = self.control.receive()
            if kind != PING:
                return kind, payload
            self.say(PONG, payload)

    def until(self, wanted):
        while True:
            kind, payload = self.next()
            if kind == wanted:
                return payload


class Relay:
    """West: it takes a version from north, and serves east what it likes."""

    def __init__(self, lab):
        self.lab, self.forger = lab, Forger(lab)
        self.north, self.east = lab.site("north"), lab.site("east")
        me = f"unix:{os.getuid()}"
        for site, others in ((self.north, ("west",)), (self.east, ("west", "north"))):
            site.models["policy"] = dict(home="north", read=["tombolo://west/*", me], publish=[me])
            site.peers.update({other: None for other in others})
            site.extra["link"] = {"heartbeat_ms": 60000, "down_ms": 600000, "codec": "raw"}
        self.east.subscribe.append(("policy", ["west"]))
        self.north.start()
        self.east.start()
        self.path = lab.weights(1)[0]
        self.trainer = Trainer(lab, self.north, self.path)
        self.uid = self.trainer.publish(1)
        wait_for("home has signed it", lambda: self.north.version(self.uid)["signed_by"])
        self.take()

    def take(self):
        """All frames of the version, and its chunks: {(shard, chunk): frame}."""
        link, uid = Link(self, self.north), bytes.fromhex(self.uid)
        link.say(SUBSCRIBE, text("policy") + text("north"))
        self.said = {}
        while VERSION not in self.said:
            kind, payload = link.next()
            if kind in (VERSION, STATEMENT) and uid in payload:
                self.said[kind] = payload
        link.say(ASK, uid)
        self.pages = []
        while self.lacks_pages():
            kind, payload = link.next()
            if kind in (HEAD, DIGESTS, PROOFS):
                self.pages.append((kind, payload))
        link.say(WANT, struct.pack("<I", 1) + uid)
        link.say(START, struct.pack("<I", 1))
        self.chunks = {}
        while len(self.chunks) < self.count(DIGESTS, 16):
            header = link.data.read(CHUNK.size)
            fields = CHUNK.unpack(header)
            expect("it comes as bytes", fields[2], 0)
            self.chunks[fields[6], fields[7]] = header, link.data.read(fields[9])

    def count(self, kind, each):
        pages = [payload for k, payload in self.pages if k == kind]
        return sum(struct.unpack_from("<I", p, 24)[0] // each for p in pages)

    def lacks_pages(self):
        shards = {struct.unpack_from("<I", p, 16)[0] for k, p in self.pages if k == DIGESTS}
        return len(shards) < 2 or self.count(PROOFS, 32) < self.count(DIGESTS, 16)

    def greet(self, pages):
        """East hears of the version, asks for its manifests, and gets these. None: it has them."""
        link, uid = Link(self, self.east), bytes.fromhex(self.uid)
        link.say(STATEMENT, self.said[STATEMENT])
        link.say(VERSION, self.said[VERSION])
        if pages is not None:
            expect("east asks for it", link.until(ASK), uid)
        for kind, payload in pages or ():
            link.say(kind, payload)
        return link

    def serve(self, link, payload):
        """East asks for the chunks, and gets forged ones. The chunks that it refused, or None: it holds all."""
        crossing = struct.unpack_from("<I", link.until(WANT))[0]
        link.until(START)
        for (shard, chunk), (header, right) in self.chunks.items():
            fields = list(CHUNK.unpack(header))
            fields[5] = crossing
            link.data.send(CHUNK.pack(*fields) + self.bytes_of(right, payload))
        refused = set()
        while len(refused) < len(self.chunks):
            kind, said = link.next()
            if kind == REFUSED:
                refused.add(struct.unpack_from("<II", said, 4))
            if kind == HELD and self.east.holds(self.uid):
                return None
        return refused

    @staticmethod
    def bytes_of(right, payload):
        return right if payload is None else forged(right[:FORGED_BYTES + 1], payload) + right[FORGED_BYTES + 1:]


def lies(pages):
    """{what is wrong: pages}: of the proofs, one byte of them, and their order."""
    proofs = [i for i, (kind, _) in enumerate(pages) if kind == PROOFS]
    changed = list(pages)
    kind, payload = changed[proofs[-1]]
    changed[proofs[-1]] = kind, payload[:-32] + hashlib.sha256(b"forged").digest()
    swapped = list(pages)
    kind, payload = swapped[proofs[0]]
    swapped[proofs[0]] = kind, payload[:28] + payload[60:92] + payload[28:60] + payload[92:]
    return {"another proof": changed, "two proofs swapped": swapped}


@scenario
def no_forged_chunk_of_a_relay_is_held(lab):
    """P1: each chunk has the digest of its manifest and other bytes. None is held. Then the right ones, by the same relay,
    make the version whole."""
    relay = Relay(lab)
    link = relay.greet(relay.pages)
    refused = relay.serve(link, b"forged" * 200)
    tally("forged chunks of a relay", len(relay.chunks), len(relay.chunks) - len(refused or ()))
    expect("chunks that east refused", refused, set(relay.chunks))
    expect("held", relay.east.version(relay.uid)["held_bytes"], 0)
    link.control.__exit__()
    link = relay.greet(None)
    expect("and of the right ones", relay.serve(link, None), None)
    read_and_compare(lab, relay.east, relay.uid, relay.path)


@scenario
def no_forged_proof_of_a_relay_is_believed(lab):
    """P1: proofs of forged bytes do not make the root that home signed, so nothing is asked of that relay."""
    relay = Relay(lab)
    before = relay.east.counters()["roots_refused"]
    for i, (what, pages) in enumerate(lies(relay.pages).items()):
        link = relay.greet(pages)
        wait_for(f"{what} is refused", lambda n=i: relay.east.counters()["roots_refused"] == before + n + 1)
        link.control.__exit__()
    tally("forged proofs of a relay", len(lies(relay.pages)), 0)
    link = relay.greet([page for page in relay.pages if page[0] != PROOFS])
    link.say(PING, b"\7" * 8)
    while (said := link.next()) != (PONG, b"\7" * 8):
        expect("no chunk is asked for", said[0] == WANT, False)
    expect("nothing is held", relay.east.version(relay.uid)["held_bytes"], 0)


def forge_in_arena(site, path):
    """Changes the version where the site's gateway serves it, at the beginning of a chunk. Gives back how to undo it."""
    row = max(safetensors_table(path), key=lambda r: r["bytes"])
    expect("its largest tensor has chunks of its own", row["bytes"] > 2**20, True)
    right = path.read_bytes()[row["offset"]:row["offset"] + FORGED_BYTES + 1024]
    with open(site.arena_path, "r+b") as arena:
        with mmap.mmap(arena.fileno(), 0) as memory:
            at = memory.find(right)
            expect("tensor found in the arena", at >= 0, True)
            memory[at:at + FORGED_BYTES] = forged(right, b"\x80\x3f" * 512)[:FORGED_BYTES]

    def undo():
        with open(site.arena_path, "r+b") as arena:
            with mmap.mmap(arena.fileno(), 0) as memory:
                memory[at:at + FORGED_BYTES] = right[:FORGED_BYTES]
    return undo


@scenario
def no_home_forges_bytes_that_a_publisher_signed(lab):
    """P1: the home gateway is in wrong hands. West takes no version without its publisher's signature, and no byte that it
    does not cover: other bytes with the same XXH3 are refused, though home itself serves them. Then the right ones cross."""
    east, west, _ = lab.east_west(through_link=False, publishers=["tombolo://east/publisher/trainer"])
    pki = lab.pki_dir("east")
    lab.tombolo("pki", "issue", "--dir", pki, "--publisher", "trainer")
    path = made(lab, "22M", 1)[0]
    east.start()
    signing = {"sign_cert": str(pki / "trainer.crt"), "sign_key": str(pki / "trainer.key")}
    uid = Trainer(lab, east, path, **signing).publish(1)
    east.wait_holds(uid)
    undo = forge_in_arena(east, path)
    west.start()
    wait_for("west refuses the chunk", lambda: west.daemon.logged("link.chunk_bad", "peer=east", "sent_by=peer"))
    expect("west does not hold it", west.holds(uid), False)
    undo()
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path)


if __name__ == "__main__":
    sys.exit(main())
