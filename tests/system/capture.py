"""What crosses the device between sites: every packet there, its streams put together again, and what in them is no TLS.

    with Capture(wan, "east") as seen:      # of sim/wan/wanlab.py
        ...
    seen.streams, seen.strangers, seen.complaints()

Run as a program, in a site's network namespace, it writes each packet of a device to stdout until its input ends."""

import contextlib
import select
import socket
import struct
import subprocess
import sys
import tempfile

ALL_PACKETS = 3               # ETH_P_ALL
SOL_PACKET, STATISTICS = 263, 6
RCVBUFFORCE = 33
ROOM = 256 << 20              # of packets that this program is late for
CHANGE_CIPHER, ALERT, HANDSHAKE, APPLICATION = 20, 21, 22, 23
RECORD_MOST = 16384 + 256
HELLOS_MOST = 2               # in clear: one a side, two after a request to retry


class Tls:
    """One direction of a connection, read as it passes: TLS 1.3 records and nothing else, of which only hellos are in clear."""

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
    """One direction of a TCP connection, from its SYN on."""

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


def packets(file):
    while head := file.read(4):
        yield file.read(int.from_bytes(head, "big"))


def tcp(packet):
    """(connection's direction, sequence number, SYN, payload) of a packet of TCP over IPv4."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return None
    head = (packet[0] & 15) * 4
    total = int.from_bytes(packet[2:4], "big") or len(packet)  # 0: longer than the field can say
    ports = struct.unpack(">HH", packet[head:head + 4])
    number = int.from_bytes(packet[head + 4:head + 8], "big")
    body = head + (packet[head + 12] >> 4) * 4
    return (packet[12:16], ports[0], packet[16:20], ports[1]), number, bool(packet[head + 13] & 2), packet[body:total]


class Capture:
    """All packets of a site's device to the others, while the block runs."""

    DEVICE = "wan0"

    def __init__(self, wan, site):
        self.enter = lambda *argv: wan.enter(site, [*argv])
        self.streams = []    # Stream, of both directions
        self.strangers = []  # packets that are no TCP, or of a connection whose beginning was not seen
        self.count = 0

    def __enter__(self):
        # The kernel's own talk to its neighbours is none of ours.
        subprocess.run(self.enter("sysctl", "-e", "-q", "-w", f"net.ipv6.conf.{self.DEVICE}.disable_ipv6=1"), check=True)
        self.file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.enter(sys.executable, __file__, self.DEVICE), stdin=subprocess.PIPE,
                                        stdout=self.file, stderr=subprocess.PIPE, text=True)
        if self.process.stderr.readline() != "ready\n":
            raise RuntimeError(f"no packet can be seen on {self.DEVICE}: {self.process.stderr.read()}")
        return self

    def __exit__(self, *_):
        said = self.process.communicate()[1]
        with self.file:
            self.file.seek(0)
            self.read(packets(self.file))
        if said != "dropped 0\n":
            raise RuntimeError(f"the capture is not whole: {said.strip()}")

    def read(self, seen):
        current = {}
        for packet in seen:
            self.count += 1
            found = tcp(packet)
            if found is None:
                self.strangers.append(packet)
                continue
            way, number, syn, data = found
            if syn and (way not in current or current[way].first != (number + 1) & 0xffffffff):
                current[way] = Stream((number + 1) & 0xffffffff)
                self.streams.append(current[way])
            elif way in current:
                current[way].add(number + syn, data)
            elif data or (*way[2:], *way[:2]) not in current:  # else nobody listens there: a reset answers the SYN
                self.strangers.append(packet)

    def find(self, marker):
        """How often it was seen: in streams, and in packets that belong to none."""
        return sum(s.whole().count(marker) for s in self.streams) + sum(p.count(marker) for p in self.strangers)

    def complaints(self):
        """What does not belong to a TLS connection."""
        said = [f"a packet that is no TCP: {p[:40].hex()}" for p in self.strangers]
        for stream in self.streams:
            tls = Tls()
            tls.feed(stream.whole())
            said += [tls.complaint] if tls.complaint else []
        return said


def main():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PACKETS))
    s.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, ROOM)
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
                packet = s.recv(1 << 17)
                sys.stdout.buffer.write(len(packet).to_bytes(4, "big") + packet)
    sys.stdout.buffer.flush()
    print(f"dropped {struct.unpack('II', s.getsockopt(SOL_PACKET, STATISTICS, 8))[1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
