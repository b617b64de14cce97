"""A relay with a right certificate that passes home's words on, and other bytes in place of each chunk."""

import contextlib
import select
import struct
import threading

from hostile import BIND, BOUND, PING, PONG, Connection, Ended, bind, frame, span, text, tls
from harness import expect
from forger import honest_link

SUBSCRIBE, VERSION, ASK, HEAD, DIGESTS, WANT, START, TAKE, HAVE, STATEMENT, PROOFS = 5, 7, 9, 10, 11, 12, 14, 24, 25, 38, 39
PAGES = (HEAD, DIGESTS, PROOFS)
CHUNK = struct.Struct("<IBBBBIIIII")  # of a data stream; field 5 is the crossing, field 9 the bytes that follow


class Link:
    """A control stream and a data stream to a gateway, as `site`."""

    def __init__(self, forger, to, site):
        authority = getattr(forger, site)
        self.control, session = honest_link(forger, to, site)
        self.data = Connection(to, tls(authority.folder / "ca.crt", authority.folder / "gw.crt", authority.key))
        self.data.send(frame(BIND, bind(session)))
        expect("the data stream is bound", self.data.answer(), BOUND)

    def say(self, kind, payload):
        self.control.send(frame(kind, payload))

    def close(self):
        self.control.__exit__()
        self.data.__exit__()


class ForgingRelay:
    """Between a home and a follower that asks it, too."""

    def __init__(self, forger, site, home, victim, model, home_site):
        self.home, self.victim = Link(forger, home, site), Link(forger, victim, site)
        self.crossing, self.victims_crossing = 0, None
        self.chunks = {}  # {shard: chunks} of the version that home announced last
        self.pages, self.asked, self.taken = [], False, set()
        self.forged = 0
        self.home.say(SUBSCRIBE, text(model) + text(home_site))
        threading.Thread(target=self.forge, daemon=True).start()

    def forge(self):
        """Each chunk of home goes on with a byte changed."""
        with contextlib.suppress(Ended, OSError):
            while True:
                fields = list(CHUNK.unpack(self.home.data.read(CHUNK.size)))
                bytes_of = bytearray(self.home.data.read(fields[9]))
                if self.victims_crossing is None or not bytes_of:
                    continue
                fields[5] = self.victims_crossing
                bytes_of[len(bytes_of) // 2] ^= 1
                self.victim.data.send(CHUNK.pack(*fields) + bytes_of)
                self.forged += 1

    def from_home(self, kind, payload):
        if kind in (VERSION, STATEMENT):
            self.victim.say(kind, payload)
        if kind == VERSION:
            self.chunks, self.pages, self.asked, self.taken = {}, [], False, set()
            self.home.say(ASK, payload[:16])
        if kind in PAGES:
            self.pages.append((kind, payload))
            if self.asked:
                self.victim.say(kind, payload)
        if kind == DIGESTS:
            shard, first, count = struct.unpack_from("<III", payload, 16)
            self.chunks[shard] = max(self.chunks.get(shard, 0), first + count // 16)
            if shard in self.taken:
                self.have(shard)

    def have(self, shard):
        """All chunks of the shard."""
        left, words = self.chunks.get(shard, 0), b""
        for i in range(-(-left // 64)):
            words += struct.pack("<IQ", i, 2**min(64, left - 64 * i) - 1)
        if words:
            self.victim.say(HAVE, struct.pack("<II", self.victims_crossing, shard) + span(words))

    def from_victim(self, kind, payload):
        if kind == ASK:
            self.asked = True
            for page in self.pages:
                self.victim.say(*page)
        if kind == TAKE:
            shard = struct.unpack_from("<I", payload, 4)[0]
            self.taken.add(shard)
            self.have(shard)
        if kind == WANT:
            self.victims_crossing, self.crossing = struct.unpack_from("<I", payload)[0], self.crossing + 1
            self.home.say(WANT, struct.pack("<I", self.crossing) + payload[4:])
            self.home.say(START, struct.pack("<I", self.crossing))

    def run(self):
        """Until either end hangs up."""
        ends = {self.home.control.socket: (self.home, self.from_home), self.victim.control.socket: (self.victim, self.from_victim)}
        while True:
            for ready in [s for s in ends if s.pending()] or select.select(list(ends), [], [])[0]:
                link, heard = ends[ready]
                kind, payload = link.control.receive()
                if kind == PING:
                    link.say(PONG, payload)
                else:
                    heard(kind, payload)

    def close(self):
        self.home.close()
        self.victim.close()
