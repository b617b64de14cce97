"""A site that follows one model, written from docs/protocol.md alone: what that page does not
say this program does not know.

    with SecondSite((address, port), tls_of(ca, certificate, key), "west", model="policy", home="east") as site:
        version = site.next_version()

It asks for each version when it hears of it, names the one before as a base, decodes every form,
and looks at every digest."""

import bisect
import contextlib
import ctypes
import itertools
import os
import select
import socket
import ssl
import struct

HELLO, BYE, PING, PONG, SUBSCRIBE, VERSION, ASK, HEAD, DIGESTS, WANT, HELD, START, WHOLE, BIND, BOUND, BASE = \
    1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 14, 17, 20, 21, 22
DTYPE_BYTES = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 4, 8: 8, 9: 8, 10: 1, 11: 1, 12: 2, 13: 2, 14: 4, 15: 8}
KIND_BYTES = {1: 2, 2: 2, 3: 1, 4: 4, 5: 1, 6: 1}
KIND_RAW_BITS = {1: 0, 2: 3, 3: 4, 4: 0, 5: 0, 6: 3}
MIB = 1 << 20
SECTION = 65536


class Digest(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXHASH, ZSTD = ctypes.CDLL("libxxhash.so.0"), ctypes.CDLL("libzstd.so.1")
XXHASH.XXH3_128bits.restype, XXHASH.XXH3_128bits.argtypes = Digest, [ctypes.c_char_p, ctypes.c_size_t]
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t
ZSTD.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def digest(data):
    d = XXHASH.XXH3_128bits(bytes(data), len(data))
    return d.high.to_bytes(8, "big") + d.low.to_bytes(8, "big")


def must(truth, what):
    if not truth:
        raise ValueError(what)


def text(s):
    return struct.pack("<H", len(s)) + s


def span(data):
    return struct.pack("<I", len(data)) + data


class Fields:
    """Fields of a payload, one after the other."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def take(self, count):
        must(self.at + count <= len(self.data), "a payload ends too soon")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.take(self.number("H"))

    def span(self):
        return self.take(self.number("I"))


class Version:
    """Its key, its manifest while that comes, and then its bytes."""

    def __init__(self, fields):
        self.uid, self.model, self.run = fields.take(16), fields.text(), fields.take(16)
        self.order, self.number, self.shards, self.root = fields.number("Q"), fields.number("Q"), fields.number("I"), fields.take(16)
        self.heads = [bytearray() for _ in range(self.shards)]
        self.pages = [bytearray() for _ in range(self.shards)]
        self.layouts, self.chunks, self.memory = [], [], []
        self.forms = set()  # (codec, on a base) in which chunks of it came

    def digest_of(self, shard, chunk):
        return bytes(self.pages[shard][16 * chunk:16 * chunk + 16])

    def check(self):
        """The head and the digests of all shards are here: they agree with the roots."""
        roots = []
        for shard in range(self.shards):
            head = Fields(self.heads[shard])
            layout = head.span()
            blobs = [(head.text(), head.number("Q")) for _ in range(head.number("I"))]
            root, chunks = head.take(16), cut(tensors_of(layout), [count for _, count in blobs])
            told = b"".join(text(name) + struct.pack("<Q", count) for name, count in blobs)
            must(root == digest(b"tbshard1" + digest(layout) + struct.pack("<I", len(blobs)) + told + struct.pack("<I", len(chunks)) +
                                bytes(self.pages[shard])), "a shard's root")
            roots.append(root)
            self.layouts.append(digest(layout))
            self.chunks.append(chunks)
            self.memory.append(bytearray(sum(count for _, count in chunks)))
        must(self.root == digest(b"tbversn1" + self.uid + text(self.model) + self.run + struct.pack("<QI", self.number, self.shards) +
                                 b"".join(roots)), "the version's root")

    def bytes_of(self, shard, chunk):
        first, count = self.chunks[shard][chunk]
        return bytes(self.memory[shard][first:first + count])

    def land(self, shard, chunk, data):
        must(digest(data) == self.digest_of(shard, chunk), f"digest of chunk {chunk}")
        first, count = self.chunks[shard][chunk]
        self.memory[shard][first:first + count] = data


# ---- the cut ----

def tensors_of(layout):
    """[(dtype, part, bytes)]"""
    fields, found = Fields(layout), []
    for _ in range(fields.number("I")):
        dtype, rank, part, count = fields.number("B"), fields.number("B"), 0, 1
        if rank & 0x80:
            part = fields.number("H")
        fields.text()
        for _ in range(rank & 0x7f):
            count *= struct.unpack("<QQQ", fields.take(24))[2]
        found.append((dtype, part, count * DTYPE_BYTES[dtype]))
    must(fields.at == len(fields.data), "a layout has more than its tensors")
    return found


def pieces(first, count, target):
    n = -(-count // target)
    cuts = [i * count // n // 4096 * 4096 for i in range(n)] + [count]
    return [(first + a, b - a) for a, b in zip(cuts, cuts[1:])]


def cut(tensors, blobs):
    """[(first byte, bytes)] of a shard's chunks."""
    target, chunks, at, joined = MIB, [], 0, None  # joined: (dtype, part) of small tensors that the last chunk may take more of
    while 2 * target <= min(sum(count for _, _, count in tensors) // 4096, 16 * MIB):
        target *= 2
    for dtype, part, count in tensors:
        if count > target:
            chunks += pieces(at, count, target)
            joined = None
        elif count > 0 and joined == (dtype, part) and chunks[-1][1] + count <= target:
            chunks[-1] = (chunks[-1][0], chunks[-1][1] + count)
        elif count > 0:
            chunks.append((at, count))
            joined = (dtype, part)
        at += count
    return chunks + (pieces(at, sum(blobs), target) if sum(blobs) else [])


# ---- forms ----

def elements(data, width):
    return [int.from_bytes(data[i:i + width], "little") for i in range(0, len(data) - len(data) % width, width)]


def joined_of(values, width, tail):
    return b"".join(v.to_bytes(width, "little") for v in values) + tail


def of_zstd(data, count, base):
    width = data[0] if base is not None else 1
    frame, out = data[1 if base is not None else 0:], ctypes.create_string_buffer(count)
    must(ZSTD.ZSTD_decompress(out, count, frame, len(frame)) == count, "a frame of zstd")
    if base is None:
        return out.raw
    sums = [(a + b) % (1 << 8 * width) for a, b in zip(elements(out.raw, width), elements(base, width))]
    return joined_of(sums, width, out.raw[count - count % width:])


def planes_levels(fields, levels, two, escapes, count):
    """[codes of each level], and how many escape all of them."""
    codes = []
    for level in range(levels):
        wide, found = two >> level & 1, []
        for first in range(0, count, 64):
            low, high = fields.number("Q"), fields.number("Q") if wide else 0
            found += [low >> i & 1 | (high >> i & 1) << 1 for i in range(min(64, count - first))]
        must(found.count(3 if wide else 1) == escapes[level], "escapes")
        codes.append(found)
        count = escapes[level]
    return codes, count


def planes_section(fields, kind, count, base):
    width, raw_bits = (KIND_BYTES[kind], KIND_RAW_BITS[kind] if base is None else 0)
    levels, two = fields.number("B"), fields.number("B")
    must(fields.take(2) == bytes(2), "zeros of a section")
    escapes = [fields.number("I") for _ in range(levels)]
    wide = fields.number("I") if base is not None and width > 1 else 0
    keys = [fields.take(3 if two >> level & 1 else 1) for level in range(levels)]
    rest = [fields.take(count) for _ in range(width - 1)] if base is None else []
    raw = [0] * count
    for first in range(0, count if levels else 0, 64):
        words = [fields.number("Q") for _ in range(raw_bits)]
        for i in range(min(64, count - first)):
            raw[first + i] = sum((word >> i & 1) << bit for bit, word in enumerate(words))
    codes, literals = planes_levels(fields, levels, two, escapes, count)
    hot = list(fields.take(literals))
    for level in reversed(range(levels)):
        escaped, escape = iter(hot), 3 if two >> level & 1 else 1
        hot = [next(escaped) if code == escape else keys[level][code] for code in codes[level]]
    if levels:
        hot = [key << raw_bits | low for key, low in zip(hot, raw)]
    listed = iter([int.from_bytes(fields.take(width), "little") for _ in range(wide)])
    if base is not None:
        folded = [next(listed) if h == 255 and width > 1 else h for h in hot]
        return [(b + (f // 2 if f % 2 == 0 else -((f + 1) // 2))) % (1 << 8 * width) for f, b in zip(folded, base)]
    turned = [h << 8 * (width - 1) | sum(plane[i] << 8 * j for j, plane in enumerate(rest)) for i, h in enumerate(hot)]
    return turned if kind == 5 else [v >> 1 | (v & 1) << (8 * width - 1) for v in turned]


def of_planes(data, count, base):
    fields = Fields(data)
    kind = fields.number("B")
    must(fields.take(3) == bytes(3), "zeros of planes")
    width = KIND_BYTES[kind]
    tail, under, values = fields.take(count % width), elements(base, width) if base is not None else None, []
    for first in range(0, count // width, SECTION):
        some = min(SECTION, count // width - first)
        values += planes_section(fields, kind, some, under[first:first + some] if under else None)
    must(fields.at == len(data), "planes end elsewhere")
    return joined_of(values, width, tail)


class Bits:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        first, self.at = self.at, self.at + count
        must(self.at <= 8 * len(self.data), "bits end too soon")
        return int.from_bytes(self.data[first // 8:(self.at + 7) // 8], "little") >> first % 8 & (1 << count) - 1

    def count(self):
        length = self.take(5)
        return 1 << (length - 1) | self.take(length - 1) if length else 0

    def rice(self, k, width):
        zeros = 0
        while zeros < 16 and not self.take(1):
            zeros += 1
        return self.take(width) if zeros == 16 else zeros << k | self.take(k)

    def places(self, count):
        """Those that gaps lead to."""
        k, at, found = self.take(4), -1, []
        for _ in range(count):
            at += self.rice(k, 16) + 1
            found.append(at)
        return found


KEYS = {1: lambda v: v >> 7 & 255, 2: lambda v: v >> 8 & 127, 3: lambda v: v & 127, 4: lambda v: v >> 23 & 255, 5: lambda v: 0}


def sparse_class(bits, members, values, width):
    changes = bits.count()
    if changes == 0:
        return
    places = bits.places(changes)
    signs, steps, odd = [bits.take(1) for _ in places], [1] * changes, bits.count()
    if odd:
        where = bits.places(odd)
        k = bits.take(5)
        for i in where:
            steps[i] = bits.rice(k, 8 * width) + 2
    for place, down, step in zip(places, signs, steps):
        i = members[place]
        values[i] = (values[i] + (-step if down else step)) % (1 << 8 * width)


def of_sparse(data, count, base):
    kind, classes = data[0], data[1]
    width, at = KIND_BYTES[kind], 4 + classes - 1
    bounds, tail = data[4:at], data[at:at + count % width]
    bits, values = Bits(data[at + count % width:]), elements(base, width)
    for first in range(0, len(values), SECTION):
        members = [[] for _ in range(classes)]
        for i in range(first, min(first + SECTION, len(values))):
            members[bisect.bisect_right(bounds, KEYS[kind](values[i]))].append(i)
        for of_class in members:
            sparse_class(bits, of_class, values, width)
    must(8 * len(bits.data) - bits.at < 8, "sparse ends elsewhere")
    return joined_of(values, width, tail)


FORMS = {0: lambda data, count, base: data, 1: of_zstd, 2: of_planes, 3: of_sparse}


# ---- the link ----

class SecondSite:
    """One thread; so a peer has to be patient while a chunk is decoded."""

    def __init__(self, to, tls, name, model, home):
        self.to, self.tls, self.name, self.model, self.home = to, tls, name.encode(), model.encode(), home.encode()
        self.versions, self.crossings, self.numbers = {}, {}, itertools.count(1)
        self.whole = []  # versions, the newest last

    def __enter__(self):
        with contextlib.ExitStack() as opened:
            self.control = opened.enter_context(self.dial())
            session = self.greet()
            self.data = opened.enter_context(self.dial())
            self.send(BIND, session + struct.pack("<I", 1), self.data)
            must(self.receive(self.data)[0] == BOUND, "BOUND")
            self.opened = opened.pop_all()
        return self

    def __exit__(self, *_):
        self.opened.close()

    def next_version(self, timeout_s=60):
        count = len(self.whole)
        while len(self.whole) == count:
            ready = [c for c in (self.control, self.data) if c.pending()] or select.select([self.control, self.data], [], [], timeout_s)[0]
            must(ready, "nothing comes")
            for connection in ready:
                (self.hear if connection is self.control else self.land)()
        return self.whole[-1]

    def dial(self):
        return self.tls.wrap_socket(socket.create_connection(self.to, timeout=60))

    def greet(self):
        self.send(HELLO, struct.pack("<II", 2, 1) + text(self.name) + text(b"gw") + struct.pack("<II", 0, 1) + os.urandom(16) +
                  struct.pack("<Q", 1) + bytes(16) + span(b""))
        self.send(SUBSCRIBE, text(self.model) + text(self.home))
        kind, said = self.receive(self.control)
        must(kind == HELLO, f"HELLO, not {kind}")
        must(said.number("I") >= 2 and said.number("I") <= 2, "protocol")  # it speaks 2, too
        must((said.text(), said.text()) == (self.home, b"gw"), "who it is")
        said.take(4 + 4 + 16 + 8)
        return said.take(16)

    def send(self, kind, payload, connection=None):
        (connection or self.control).sendall(struct.pack("<IHHQ", len(payload), kind, 0, 0) + payload)

    @staticmethod
    def read(connection, count):
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            must(more, "the connection ended")
            data += more
        return data

    def receive(self, connection):
        count, kind, zero, request = struct.unpack("<IHHQ", self.read(connection, 16))
        must((zero, request) == (0, 0), "a notice")
        return kind, Fields(self.read(connection, count))

    def hear(self):
        kind, said = self.receive(self.control)
        if kind == BYE:
            raise ValueError(f"BYE {said.number('I')}")
        if kind == PING:
            self.send(PONG, said.data)
        elif kind == VERSION:
            version = Version(said)
            self.versions[version.uid] = version
            self.send(ASK, version.uid)
        elif kind in (HEAD, DIGESTS):
            self.page(kind, self.versions[said.take(16)], said)

    def page(self, kind, version, said):
        shard = said.number("I")
        if kind == HEAD:
            version.head_bytes = said.number("I")
        first, data, to = said.number("I"), said.span(), (version.heads if kind == HEAD else version.pages)[shard]
        must(first * (1 if kind == HEAD else 16) == len(to), "pages in order")
        to += data
        if kind == HEAD or shard < version.shards - 1:
            return
        head = Fields(version.heads[shard])
        layout = head.span()
        blobs = [(head.text(), head.number("Q"))[1] for _ in range(head.number("I"))]
        if len(to) == 16 * len(cut(tensors_of(layout), blobs)):
            version.check()
            self.begin(version)

    def begin(self, version):
        number, base = next(self.numbers), self.whole[-1] if self.whole else None
        self.crossings[number] = version, base
        version.left = sum(map(len, version.chunks))
        version.held = [[0] * -(-len(chunks) // 64) for chunks in version.chunks]
        self.send(WANT, struct.pack("<I", number) + version.uid)
        same = []
        if base is not None:
            self.send(BASE, struct.pack("<I", number) + base.uid)
            same = [(s, k) for s, chunks in enumerate(version.chunks) for k in range(len(chunks))
                    if version.layouts[s] == base.layouts[s] and version.digest_of(s, k) == base.digest_of(s, k)]
        self.send(START, struct.pack("<I", number))
        for shard, chunk in same:
            self.hold(number, shard, chunk, base.bytes_of(shard, chunk))

    def hold(self, number, shard, chunk, data):
        version, _ = self.crossings[number]
        version.land(shard, chunk, data)
        version.held[shard][chunk // 64] |= 1 << chunk % 64
        version.left -= 1
        self.send(HELD, struct.pack("<II", number, shard) + span(struct.pack("<IQ", chunk // 64, version.held[shard][chunk // 64])))
        if version.left == 0:
            self.whole.append(version)
            self.send(WHOLE, version.uid)

    def land(self):
        head = struct.unpack("<4sBBBBIIIII", self.read(self.data, 28))
        magic, kind, codec, on_base, zero, number, shard, chunk, count, wire_bytes = head
        data = self.read(self.data, wire_bytes)
        must((magic, kind, zero) == (b"TBCF", 1, 0) and wire_bytes <= count, f"a chunk's header: {head}")
        version, base = self.crossings[number]
        must(count == version.chunks[shard][chunk][1], "the chunk's size")
        version.forms.add((codec, on_base))
        self.hold(number, shard, chunk, FORMS[codec](data, count, base.bytes_of(shard, chunk) if on_base else None))


def tls_of(ca, certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # its identity is a URI
    context.load_verify_locations(ca)
    context.load_cert_chain(certificate, key)
    return context
