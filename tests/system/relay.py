"""The devices between the gateways of a system test: a relay that can be slowed, stalled, cut and
counted, and a name server."""

import contextlib
import socket
import struct
import threading
import time

from capture import Tls

CRAWL = 64 << 10  # bytes a second
# A slow relay passes on this much at once, in seconds of its rate. It holds no more than its
# buffer: a window opens by a sixteenth of the buffer, and the kernel makes that megabytes long,
# which at this rate takes longer than a stream may stand still.
STEADY_S = 0.05
SLOW_BUFFER = 16 << 10
SEGMENT_BUFFER = 64 << 10  # less lets a segment of the loopback through at a time, each behind a timer
BUFFER_S = 0.025           # of the rate, where that is more


class Link(threading.Thread):
    """A TCP relay between two gateways: counts bytes each way, holds them to a rate, stalls, or
    cuts connections. A test in which anything but TLS crosses has failed."""

    def __init__(self, to_address, to_port):
        super().__init__(daemon=True)
        self.to_address = to_address
        self.to_port = to_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs = []            # (client socket, server socket)
        self.forward_bytes = 0     # from the dialling side
        self.back_bytes = 0
        self.bytes_per_s = 0       # of each connection and direction; 0: no limit
        self.shared = False        # all connections share that rate, as they would a line
        self.free_at = [0.0, 0.0]  # when that line has passed on all that it took, back and forth
        self.crawl_at = 0          # bytes back; behind them it crawls, where it has a limit: the middle of a version lasts. 0: nowhere
        self.refusing = False
        self.stalled = False
        self.deaf = False          # what the dialling side says from now on is kept from the other
        self.clear = []            # what crossed and was no TLS
        self.closed = False
        self.start()

    def run(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection((self.to_address, self.to_port), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            if self.bytes_per_s:
                room = min(SEGMENT_BUFFER, max(SLOW_BUFFER, int(self.bytes_per_s * BUFFER_S)))
                for s in (client, server):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            with self.lock:
                self.pairs.append((client, server))
            for a, b, forward in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(a, b, forward), daemon=True).start()

    def rate(self):
        crawls = self.crawl_at and self.back_bytes >= self.crawl_at
        return min(self.bytes_per_s, CRAWL) if crawls else self.bytes_per_s

    def line_takes(self, forward, seconds):
        """How long until bytes that take so many seconds have passed, behind those of other
        connections."""
        with self.lock:
            now = time.monotonic()
            self.free_at[forward] = max(now, self.free_at[forward]) + seconds
            return self.free_at[forward] - now

    def _pump(self, a, b, forward):
        tls = Tls()
        try:
            while True:
                while self.stalled and not self.closed:
                    time.sleep(0.01)
                data = a.recv(max(1024, min(65536, int(self.rate() * STEADY_S) or 65536)))
                if not data:
                    break
                with self.lock:
                    if forward:
                        self.forward_bytes += len(data)
                    else:
                        self.back_bytes += len(data)
                    if tls.complaint is None:
                        tls.feed(data)
                        self.clear += [tls.complaint] if tls.complaint else []
                rate = self.rate()
                if rate:
                    time.sleep(self.line_takes(forward, len(data) / rate) if self.shared else len(data) / rate)
                while forward and self.deaf and not self.closed:
                    time.sleep(0.01)
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def total_bytes(self):
        with self.lock:
            return self.forward_bytes + self.back_bytes

    def connections(self):
        with self.lock:
            return [p for p in self.pairs if p[0].fileno() >= 0]

    def cut(self, which=None):
        """Ends all connections, or the one at an index of those still open."""
        pairs = self.connections()
        for i, (client, server) in enumerate(pairs):
            if which is not None and i != which:
                continue
            for s in (client, server):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
            with self.lock:
                if (client, server) in self.pairs:
                    self.pairs.remove((client, server))

    def close(self):
        self.closed = True
        self.refusing = True
        self.stalled = False
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


class Dns(threading.Thread):
    """A name server on loopback: A records, and services as [(priority, weight, port, host)].
    Its table may change."""

    def __init__(self, names, services=None, ttl_s=60):
        super().__init__(daemon=True)
        self.names = names
        self.services = services or {}
        self.ttl_s = ttl_s
        self.asked = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.start()

    @staticmethod
    def labels(name):
        return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"

    def records(self, name, kind):
        if kind == 1:
            return [socket.inet_aton(a) for a in self.names.get(name, [])]
        if kind == 33:
            return [struct.pack(">HHH", *row[:3]) + self.labels(row[3]) for row in self.services.get(name, [])]
        return []

    def run(self):
        while True:
            query, client = self.socket.recvfrom(512)
            if not query:
                return
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            question, kind = query[12:at + 5], int.from_bytes(query[at + 1:at + 3], "big")
            records = self.records(".".join(labels).lower(), kind)
            self.asked += 1
            answers = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, self.ttl_s, len(r)) + r for r in records)
            self.socket.sendto(query[:2] + b"\x84\x00\x00\x01" + len(records).to_bytes(2, "big")
                               + b"\x00\x00\x00\x00" + question + answers, client)

    def close(self):
        self.socket.sendto(b"", ("127.0.0.1", self.port))
        self.join(5)
        self.socket.close()
