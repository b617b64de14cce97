"""The packets that cross the device between sites: all of them, its streams put together again, and
what in them is no TLS.

    with Capture(wan, "east") as seen:      # of sim/wan/wanlab.py
        ...
    seen.streams, seen.strangers, seen.complaints()

Of several sites each packet is taken where it leaves, once and as it was before the path lost,
doubled or spoiled it.

Run as a program, in a site's network namespace, it writes each packet of a device to stdout
until its input ends."""

import contextlib
import ctypes
import errno
import select
import socket
import struct
import subprocess
import sys
import tempfile

ALL_PACKETS = 3               # ETH_P_ALL
SOL_PACKET, STATISTICS = 263, 6
RCVBUFFORCE, ATTACH_FILTER = 33, 26
ROOM = 256 << 20              # of packets that this program is late for
SYN, RST = 2, 4
OUTGOING, ARP = 4, 0x0806     # PACKET_OUTGOING, ETH_P_ARP
CHANGE_CIPHER, ALERT, HANDSHAKE, APPLICATION = 20, 21, 22, 23
RECORD_MOST = 16384 + 256
HELLOS_MOST = 2               # in clear: one a side, two after a request to retry


class Tls:
    """One direction of a connection, read as it passes: TLS 1.3 records and nothing else, of
    which only hellos are in clear."""

    def __init__(self):
        self.header = b""
        self.skip = 0
        self.hellos = 0
        self.sealed = False
        self.complaint = None

    def feed(self, data):
        at = 0
        while at < len(data) and self.complaint is None:
            if self.skip:
                step = min(self.skip, len(data) - at)
                self.skip -= step
            else:
                step = min(5 - len(self.header), len(data) - at)
                self.header += data[at:at + step]
                if len(self.header) == 5:
                    self.record(*struct.unpack(">BHH", self.header))
                    self.header = b""
            at += step

    def record(self, kind, version, count):
        self.hellos += kind == HANDSHAKE
        known = kind in (CHANGE_CIPHER, ALERT, HANDSHAKE, APPLICATION) and version in (0x0301, 0x0303) and 0 < count <= RECORD_MOST
        if not known or self.hellos == 0 and kind != ALERT or self.hellos > HELLOS_MOST or self.sealed and kind != APPLICATION:
            self.complaint = f"{self.header.hex()} begins no record of TLS 1.3 here"
        self.sealed = self.sealed or kind == APPLICATION
        self.skip = count


class Stream:
    """One direction of a TCP connection, from its SYN on; its bytes are kept."""

    def __init__(self, first):
        self.first = first    # number of its first byte
        self.bytes = bytearray()
        self.parts = []       # (offset, end) of what was seen

    def add(self, number, data):
        # Beyond 2 GiB numbers would wrap into what was before; no test sends so much.
        offset = (number - self.first) & 0xffffffff
        if offset >= 1 << 31:
            offset, data = 0, data[(1 << 32) - offset:]  # of a keep-alive: one byte before what comes next
        if not data:
            return
        end = offset + len(data)
        if len(self.bytes) < end:
            self.bytes.extend(bytes(end - len(self.bytes)))
        self.bytes[offset:end] = data
        self.parts.append((offset, end))

    def whole(self):
        """Its bytes up to the first that was not seen."""
        seen = 0
        for offset, end in sorted(self.parts):
            if offset > seen:
                break
            seen = max(seen, end)
        return bytes(self.bytes[:seen])


class Passing:
    """The same of which nothing is kept but what is to be looked at yet."""

    def __init__(self, first):
        self.first = first
        self.tls = Tls()
        self.next = 0         # offset of the first byte that was not seen
        self.early = {}       # offset: bytes

    def add(self, number, data):
        offset = (number - self.first) & 0xffffffff
        if offset >= 1 << 31:
            offset, data = 0, data[(1 << 32) - offset:]
        if data and len(data) > len(self.early.get(offset, b"")):
            self.early[offset] = data
        while self.early and (at := min(self.early)) <= self.next:
            rest = self.early.pop(at)[self.next - at:]
            self.tls.feed(rest)
            self.next += len(rest)


def packets(file):
    while head := file.read(4):
        yield file.read(int.from_bytes(head, "big"))


def tcp(packet):
    """(connection's direction, sequence number, flags, payload) of a packet of TCP over IPv4."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return None
    head = (packet[0] & 15) * 4
    total = int.from_bytes(packet[2:4], "big") or len(packet)  # 0: longer than the field can say
    ports = struct.unpack(">HH", packet[head:head + 4])
    number = int.from_bytes(packet[head + 4:head + 8], "big")
    body = head + (packet[head + 12] >> 4) * 4
    return (packet[12:16], ports[0], packet[16:20], ports[1]), number, packet[head + 13], packet[body:total]


class Capture:
    """All packets of a site's device to the others, or of several sites' devices, while the
    block runs."""

    DEVICE = "wan0"

    def __init__(self, wan, *sites):
        self.wan = wan
        self.sites = sites
        self.files, self.processes = [], []
        self.kind = Stream if len(sites) == 1 else Passing
        self.streams = []    # of that kind, of both directions
        self.strangers = []  # packets that are no TCP, or of a connection whose beginning was not seen
        self.count = 0

    def begin(self, site):
        # The kernel's own talk to its neighbours is none of ours.
        subprocess.run(self.wan.enter(site, ["sysctl", "-e", "-q", "-w", f"net.ipv6.conf.{self.DEVICE}.disable_ipv6=1"]), check=True)
        self.files.append(tempfile.TemporaryFile())
        program = [sys.executable, __file__, self.DEVICE, *(["leaving"] if len(self.sites) > 1 else [])]
        process = subprocess.Popen(self.wan.enter(site, program), stdin=subprocess.PIPE, stdout=self.files[-1],
                                   stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        if process.stderr.readline() != "ready\n":
            raise RuntimeError(f"no packet can be seen on {self.DEVICE}: {process.stderr.read()}")

    def __enter__(self):
        for site in self.sites:
            self.begin(site)
        return self

    def __exit__(self, *_):
        said = [process.communicate()[1] for process in self.processes]
        for file in self.files:
            with file:
                file.seek(0)
                self.read(packets(file))
        if set(said) != {"dropped 0\n"}:
            raise RuntimeError(f"the capture is not whole: {''.join(said).strip()}")

    def read(self, seen):
        current = {}
        for packet in seen:
            self.count += 1
            found = tcp(packet)
            if found is None:
                self.strangers.append(packet)
                continue
            way, number, flags, data = found
            syn = bool(flags & SYN)
            if syn and (way not in current or current[way].first != (number + 1) & 0xffffffff):
                current[way] = self.kind((number + 1) & 0xffffffff)
                self.streams.append(current[way])
            elif way in current:
                current[way].add(number + syn, data)
            elif data or not flags & RST:  # else nobody listens there, or not any more
                self.strangers.append(packet)

    def find(self, marker):
        """How often it was seen: in streams, and in packets that belong to none."""
        return sum(s.whole().count(marker) for s in self.streams) + sum(p.count(marker) for p in self.strangers)

    def complaints(self):
        """The bytes that belong to no TLS connection."""
        said = [f"a packet that is no TCP: {p[:40].hex()}" for p in self.strangers]
        for stream in self.streams:
            tls = stream.tls if self.kind is Passing else Tls()
            if self.kind is Stream:
                tls.feed(stream.whole())
            said += [tls.complaint] if tls.complaint else []
        return said


def only_leaving(s):
    """The kernel passes on what leaves by this device, but for its own questions after neighbours."""
    load, equal, answer = 0x28, 0x15, 0x06
    code = ((load, 0, 0, 0xfffff004), (equal, 0, 3, OUTGOING), (load, 0, 0, 0xfffff000), (equal, 1, 0, ARP), (answer, 0, 0, 1 << 18),
            (answer, 0, 0, 0))
    steps = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in code))
    s.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, struct.pack("@HP", len(code), ctypes.addressof(steps)))


def receive(s):
    """A packet; nothing, where the socket says that its device went down."""
    try:
        return s.recv(1 << 17)
    except OSError as error:
        if error.errno != errno.ENETDOWN:
            raise
        return b""


def main():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PACKETS))
    s.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, ROOM)
    if "leaving" in sys.argv:
        only_leaving(s)
    s.bind((sys.argv[1], ALL_PACKETS))
    s.setblocking(False)
    with contextlib.suppress(BlockingIOError):  # of other devices, from before it was bound
        while True:
            s.recv(1)
    s.getsockopt(SOL_PACKET, STATISTICS, 8)
    print("ready", file=sys.stderr, flush=True)
    ending = False
    while not ending:
        ending = sys.stdin in select.select([s, sys.stdin], [], [])[0]
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = receive(s)
                if packet:
                    sys.stdout.buffer.write(len(packet).to_bytes(4, "big") + packet)
    sys.stdout.buffer.flush()
    print(f"dropped {struct.unpack('II', s.getsockopt(SOL_PACKET, STATISTICS, 8))[1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
