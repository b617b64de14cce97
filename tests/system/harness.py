"""Real processes for system tests: sites, gateways, workers, and a link that can be slowed, cut and counted.

Everything stands in one temporary folder and on loopback, and ends with the test: only processes started here are
ended, by their id. Waiting is always for a condition, with a bound; nothing sleeps to let something happen."""

import contextlib
import json
import mmap
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from capture import Capture, Tls

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.setdefault("TB_BUILD_DIR", str(SOURCE / "build/dev")))
sys.path.append(str(SOURCE / "sim"))
import leavings  # noqa: E402
TOMBOLO = BUILD / "gateway/cli/tombolo"
TOMBOLOD = BUILD / "gateway/daemon/tombolod"
WORKER = BUILD / "tests/system/tombolo-test-worker"
HELD_SYNC = BUILD / "tests/system/libtombolo-test-held-sync.so"
HELD_READ = BUILD / "tests/system/libtombolo-test-held-read.so"
SHIFTED_CLOCK = BUILD / "tests/system/libtombolo-test-shifted-clock.so"
MAKE_WEIGHTS = BUILD / "sim/tombolo-make-weights"
# Sanitized builds are several times slower; conditions that are met on time there are met early elsewhere.
PATIENCE_S = float(os.environ.get("TB_PATIENCE_S", "60"))
PATIENCE_MS = int(PATIENCE_S * 1000)
PATIENCE = f"{PATIENCE_S:.0f}s"  # for --timeout
CRAWL = 64 << 10
# What a slow relay passes on at once, in seconds of its rate; and how much it may hold, or its window would open in steps that take longer than
# a stream may stand still (a window opens by a sixteenth of the buffer, and the kernel makes it megabytes long).
STEADY_S = 0.05
SLOW_BUFFER = 16 << 10
DAY_S = 24 * 3600
OTHERS_BUSY = 0.25  # the part of this machine's cores from which on a time that was too long says nothing


class Skipped(Exception):
    """This machine cannot run it: why."""


class Failed(Exception):
    pass


def wait_for(what, condition, timeout_s=None):
    """The first true value of condition(), which is asked every 20 ms."""
    end = time.monotonic() + (timeout_s or PATIENCE_S)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"did not come true in time: {what}")
        time.sleep(0.02)


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}: got {got!r}, wanted {wanted!r}")


def safetensors_table(path):
    """[{name, dtype, shape, offset, bytes}] with offsets into the file."""
    with open(path, "rb") as f:
        (header_bytes,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(header_bytes))
    rows = []
    for name, t in header.items():
        if name == "__metadata__":
            continue
        first, end = t["data_offsets"]
        rows.append({"name": name, "dtype": t["dtype"], "shape": t["shape"],
                     "offset": 8 + header_bytes + first, "bytes": end - first})
    return rows


class Link(threading.Thread):
    """A TCP relay between two gateways: counts bytes each way, holds them to a rate, stalls, or cuts connections. What is no TLS
    fails the test."""

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
                for s in (client, server):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)
            with self.lock:
                self.pairs.append((client, server))
            for a, b, forward in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(a, b, forward), daemon=True).start()

    def rate(self):
        crawls = self.crawl_at and self.back_bytes >= self.crawl_at
        return min(self.bytes_per_s, CRAWL) if crawls else self.bytes_per_s

    def line_takes(self, forward, seconds):
        """How long until bytes that take so many seconds have passed, behind those of other connections."""
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
    """A name server on loopback: A records, and services as [(priority, weight, port, host)]. What it knows may change."""

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


class Process:
    def __init__(self, name, argv, log_path, **kwargs):
        self.name = name
        self.log_path = log_path
        self.log = open(log_path, "ab")
        self.ended_by_us = False
        self.popen = subprocess.Popen([str(a) for a in argv], stderr=self.log, **kwargs)

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def stop(self):
        """SIGSTOP, and until every thread has stopped: the one that takes the signal stops the others, and may wait for a core first."""
        self.signal(signal.SIGSTOP)

        def stopped():
            states = []
            for task in pathlib.Path(f"/proc/{self.popen.pid}/task").iterdir():
                with contextlib.suppress(OSError):  # a thread that just ended
                    states.append((task / "stat").read_text().rsplit(")", 1)[1].split()[0])
            return all(state in "TZ" for state in states)
        wait_for(f"{self.name} has stopped", stopped)

    def kill(self):
        self.ended_by_us = True
        self.signal(signal.SIGKILL)
        self.popen.wait(20)

    def died(self):
        """The signal that ended it, if it was not one of ours; 0 otherwise."""
        code = self.popen.poll()
        return -code if code is not None and code < 0 and not self.ended_by_us else 0

    def ended(self):
        """Its exit code, once it has ended."""
        return self.popen.wait(PATIENCE_S)

    def terminate(self):
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def logged(self, *words):
        """Log lines that have all the words."""
        self.log.flush()
        lines = self.log_path.read_text(errors="replace").splitlines()
        return [line for line in lines if all(w in line for w in words)]


class Worker(Process):
    def __init__(self, lab, name, site=None, host=None, env=None, **open_with):
        prefix = site.worker_prefix if site is not None else []
        super().__init__(name, [*prefix, WORKER], lab.dir / f"{name}.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         env={**os.environ, **(env or {})})
        self.lab = lab
        self.pending = b""
        lab.processes.append(self)
        if site is not None:
            gateway = open_with.pop("gateway", f"unix:{site.session_socket}")
            self.ok("open", gateway=gateway, name=name, host=host or f"host-{name}", **open_with)

    def send(self, cmd, **fields):
        line = json.dumps({"cmd": cmd, **fields}) + "\n"
        self.popen.stdin.write(line.encode())
        self.popen.stdin.flush()

    def receive(self, timeout_s=None):
        end = time.monotonic() + (timeout_s or PATIENCE_S)
        fd = self.popen.stdout.fileno()
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise Failed(f"{self.name}: no answer in time")
            data = os.read(fd, 1 << 16)
            if not data:
                raise Failed(f"{self.name}: died with {self.popen.wait()}; see {self.log_path}:\n"
                             + self.log_path.read_text(errors="replace")[-3000:])
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def has_answered(self):
        return bool(self.pending or select.select([self.popen.stdout], [], [], 0)[0])

    def call(self, cmd, **fields):
        self.send(cmd, **fields)
        return self.receive()

    def ok(self, cmd, **fields):
        reply = self.call(cmd, **fields)
        if reply["status"] != "ok":
            raise Failed(f"{self.name}: {cmd} answered {reply['status']}: {reply.get('error')}")
        return reply

    def refused(self, status, cmd, **fields):
        reply = self.call(cmd, **fields)
        expect(f"{self.name}: {cmd}", reply["status"], status)
        return reply


class Site:
    """A gateway, and what its site has behind it. SITE.LANE is another gateway of a site."""

    def __init__(self, lab, name, arena_mib=128, lanes=1):
        self.lab = lab
        self.name = name
        self.of, self.lane = Site.split(name)
        self.lanes = lanes
        self.dir = lab.dir / name
        self.dir.mkdir()
        self.session_socket = self.dir / "session.sock"
        self.control_socket = self.dir / "control.sock"
        self.arena_path = lab.arena_dir / f"{name}.arena"
        self.arena_mib = arena_mib  # small: the kernel makes and zeroes all of it at each start, which was 40 % of these tests' CPU at 256
        self.port = lab.free_port()
        self.worker_port = lab.free_port()
        self.listen = True
        self.peers = {}       # site name -> address or None
        self.peer_keys = {}   # site name -> {key: value} beside gateway, ca and address
        self.subscribe = []   # (model, [from...])
        self.models = {}      # model -> dict(home=, keep=, publish=[], read=[])
        self.extra = {}       # section -> {key: value}
        self.arguments = []   # of tombolod
        self.new_home = True  # until it answers for the first time it is a first installation, and says so
        self.root = {}        # keys of no section
        self.daemon = None
        self.starts = 0
        self.env = {}         # of the daemon
        self.prefix = []      # what the daemon is started through: SmallDisk.enter
        self.worker_prefix = []  # and its workers: into a network namespace
        self.address = lab.address
        self.trust = lab.pki_dir(self.of)
        self.gateway = lab.gateway_of(name)

    @staticmethod
    def split(name):
        site, _, lane = name.partition(".")
        return site, int(lane or 0)

    def live_in(self, enter, address):
        """Its gateway and workers are started through the argv `enter`, into a network of their own where it has this address."""
        self.prefix, self.worker_prefix, self.address = enter, enter, address

    # ---- configuration ----

    def config_text(self):
        me = f"{os.getuid()}"
        pki = self.trust
        sections = {
            "control": {"socket": self.control_socket},
            "session": {"socket": self.session_socket, "lease_ms": 3000},
            "store": {"path": self.dir / "store.sqlite"},
            "arena": {"path": self.arena_path, "bytes": f"{self.arena_mib}MiB"},
            "tls": {"ca": pki / "ca.crt", "cert": pki / f"{self.gateway}.crt", "key": pki / f"{self.gateway}.key"},
            "link": {"streams": 4, "heartbeat_ms": 300, "down_ms": 1500, "retry_max_ms": 500},
            "log": {"level": "info"},
        }
        if self.listen:
            sections["link"]["listen"] = f"{self.address}:{self.port}"
        for section, keys in self.extra.items():
            sections.setdefault(section, {}).update(keys)
        lanes = {"lane": self.lane, "lanes": self.lanes} if self.lanes > 1 else {}
        lines = [f"site: {self.of}", f"gateway: {self.gateway}"] + [f"{k}: {v}" for k, v in {**lanes, **self.root}.items()]
        for section, keys in sections.items():
            lines.append(f"{section}:")
            lines += [f"  {k}: {json.dumps(v) if isinstance(v, list) else v}" for k, v in keys.items()]
        lines.append("peers:" if self.peers else "peers: {}")
        for site, address in self.peers.items():
            lines.append(f"  {site}:")
            of, lane = Site.split(site)
            lines.append(f"    gateway: {self.lab.gateway_of(site)}")
            lines += [f"    lane: {lane}"] if lane else []
            lines.append(f"    ca: {self.lab.pki_dir(of) / 'ca.crt'}")
            if address:
                lines.append(f"    address: {address}")
            lines += [f"    {k}: {json.dumps(v) if isinstance(v, list) else v}" for k, v in self.peer_keys.get(site, {}).items()]
        lines.append("models:")
        for model, m in self.models.items():
            lines.append(f"  {model}:")
            lines.append(f"    home: {m['home']}")
            lines.append(f"    keep: {m.get('keep', 2)}")
            lines += [f"    {k}: {m[k]}" for k in ("policy", "weight") if k in m]
            lines.append(f"    publish: {json.dumps(m.get('publish', [f'unix:{me}']))}")
            lines.append(f"    read: {json.dumps(m.get('read', [f'unix:{me}'] + [f'tombolo://{s}/*' for s in ('east', 'west', 'north')]))}")
        lines.append("subscribe:" if self.subscribe else "subscribe: []")
        for model, sources in self.subscribe:
            lines.append(f"  - model: {model}")
            lines.append(f"    from: {json.dumps(sources)}")
        return "\n".join(lines) + "\n"

    def start(self, wait=True, env=None):
        config = self.dir / "tombolod.yaml"
        config.write_text(self.config_text())
        self.starts += 1
        first = ["--new-home"] if self.new_home else []
        self.daemon = Process(f"tombolod-{self.name}", [*self.prefix, TOMBOLOD, "--config", config, *first, *self.arguments],
                              self.dir / f"tombolod.{self.starts}.log", env=dict(os.environ, **self.env, **(env or {})))
        self.lab.processes.append(self.daemon)
        if wait:
            wait_for(f"{self.name} answers on its control socket", self._answers)
            self.new_home = False
        return self

    def _answers(self):
        if not self.daemon.alive():
            raise Failed(f"tombolod of {self.name} ended with {self.daemon.popen.returncode}:\n"
                         + self.daemon.log_path.read_text(errors="replace")[-3000:])
        try:
            return self.control("status")["ok"]
        except OSError:
            return False

    def kill(self):
        self.daemon.kill()

    def restart(self):
        self.kill()
        self.start()

    # ---- asking it ----

    def control(self, cmd, **fields):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(str(self.control_socket))
            s.sendall((json.dumps({"schema": 1, "cmd": cmd, **fields}) + "\n").encode())
            data = b""
            while not data.endswith(b"\n"):
                more = s.recv(1 << 20)
                if not more:
                    raise OSError("control connection closed")
                data += more
        return json.loads(data)

    def versions(self, model="policy"):
        return self.control("versions", model=model).get("versions", [])

    def version(self, uid, model="policy"):
        for v in self.versions(model):
            if v["uid"] == uid:
                return v
        return None

    def holds(self, uid, model="policy"):
        v = self.version(uid, model)
        return v is not None and v["bytes"] > 0 and v["held_bytes"] == v["bytes"]

    def wait_holds(self, uid, model="policy"):
        wait_for(f"{self.name} holds {uid}", lambda: self.holds(uid, model))

    def wait_held_some(self, uid, fraction=0.0, model="policy"):
        def some():
            v = self.version(uid, model)
            return v and v["bytes"] and v["held_bytes"] > fraction * v["bytes"] and v
        return wait_for(f"{self.name} holds some of {uid}", some)

    def counters(self):
        return self.control("status").get("counters", {})

    def link(self, site):
        for link in self.control("status")["links"]:
            if link["site"] == site:
                return link
        return None

    def wait_link(self, site, state="up"):
        wait_for(f"link {self.name} - {site} is {state}", lambda: (self.link(site) or {}).get("state") == state)

    def cli(self, *args, check=True, prefix=(), **kwargs):
        env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{self.session_socket}",
                   TOMBOLO_CONTROL=str(self.control_socket))
        done = subprocess.run([*prefix, str(TOMBOLO), *map(str, args)], env=env, capture_output=True, text=True,
                              timeout=PATIENCE_S * 2, **kwargs)
        if check and done.returncode != 0:
            raise Failed(f"tombolo {' '.join(map(str, args))} exited {done.returncode}: {done.stderr}")
        return done


def prefix_of_this_test():
    """Folders that begin so and processes that have it in their environment are this test's."""
    leavings.clear_orphans("tombolo-test")
    prefix = leavings.prefix_of("tombolo-test", os.getpid())
    os.environ.update([leavings.mark_of(prefix)])
    return prefix


class Lab:
    """A temporary world. Use as a context; on failure the daemons' logs are shown."""

    PREFIX = None  # of its folders, where they are not a test's

    def __init__(self):
        prefix = self.PREFIX or prefix_of_this_test()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
        shm = pathlib.Path(os.environ.get("TB_TEST_SHM", "/dev/shm"))
        base = shm if shm.is_dir() and os.access(shm, os.W_OK) else self.dir
        self.arena_dir = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        # An address of this process alone, so that a port that was free stays free until a gateway listens on it.
        pid = os.getpid()
        self.address = f"127.{64 + (pid >> 14) % 64}.{1 + (pid >> 7) % 128}.{1 + pid % 128}"
        self.processes = []
        self.links = []
        self.sites = []
        self.after = contextlib.ExitStack()  # what ends when no process of the lab lives any more: the networks they live in
        self._pki = {}
        self._ports = set()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        with self.after:
            self.end(kind)

    def end(self, kind):
        died = self.sanitizer_reports()
        if kind is None:
            died += self.end_well()
        for p in self.processes:
            if p.alive():
                p.signal(signal.SIGCONT)
                try:
                    p.kill()
                except subprocess.TimeoutExpired:  # the others still end
                    died.append(f"{p.name} did not end by SIGKILL")
        for link in self.links:
            link.close()
        complaints = died + self.sanitizer_reports() + [f"on a link (P8): {c}" for link in self.links for c in link.clear]
        if (kind is not None and not issubclass(kind, (Skipped, SystemExit))) or complaints:
            for log in sorted(self.dir.rglob("*.log")):
                text = log.read_text(errors="replace")
                if text:
                    print(f"---- {log.relative_to(self.dir)}\n{text[-6000:]}", file=sys.stderr)
        if os.environ.get("TB_KEEP") != "1":
            shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.arena_dir, ignore_errors=True)
        if kind is None and complaints:
            raise Failed(complaints[0])

    def end_well(self):
        """Workers end by end of input, then daemons by SIGTERM, so that leaks are seen; what went wrong with that."""
        alive = [p for p in self.processes if p.alive()]
        for p in alive:
            p.signal(signal.SIGCONT)
            if isinstance(p, Worker):
                p.popen.stdin.close()
        for p in alive:
            if isinstance(p, Worker):
                with contextlib.suppress(subprocess.TimeoutExpired):  # in a long call: killed below
                    p.popen.wait(2)
        daemons = [s.daemon for s in self.sites if s.daemon in alive]
        for p in daemons:
            p.signal(signal.SIGTERM)
        codes = []
        for p in daemons:
            try:
                codes.append((p.name, p.popen.wait(PATIENCE_S)))
            except subprocess.TimeoutExpired:
                codes.append((p.name, "nothing: it did not drain in time"))
        return [f"{name} ended with {code}" for name, code in codes if code != 0]

    def sanitizer_reports(self):
        signs = ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error:", "LeakSanitizer", "assert failed", "Assertion")
        found = [f"{p.name} died of signal {p.died()}" for p in self.processes if p.died()]
        for log in self.dir.rglob("*.log"):
            for line in log.read_text(errors="replace").splitlines():
                if any(s in line for s in signs):
                    found.append(f"{log.name}: {line}")
        return found

    def free_port(self):
        """One that nobody listens on, and that was not given out before: the kernel may offer a closed one again."""
        while True:
            with socket.create_server((self.address, 0)) as s:
                port = s.getsockname()[1]
            if port not in self._ports:
                self._ports.add(port)
                return port

    def pki_dir(self, site):
        """DIR with ca.crt, ca.key, gw.crt, gw.key of a site."""
        if site not in self._pki:
            d = self.dir / f"pki-{site}"
            self.tombolo("pki", "init", "--dir", d, "--site", site)
            self.tombolo("pki", "issue", "--dir", d, "--out", "gw", f"tombolo://{site}/gw")
            self._pki[site] = d
        return self._pki[site]

    def gateway_of(self, name):
        """Its name in its certificate, which is there from then on."""
        of, lane = Site.split(name)
        gateway, folder = f"gw{lane}" if lane else "gw", self.pki_dir(of)
        if not (folder / f"{gateway}.crt").exists():
            self.tombolo("pki", "issue", "--dir", folder, "--out", gateway, f"tombolo://{of}/{gateway}")
        return gateway

    def tombolo(self, *args):
        done = subprocess.run([str(TOMBOLO), *map(str, args)], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failed(f"tombolo {' '.join(map(str, args))} exited {done.returncode}: {done.stderr}")
        return done

    def process(self, name, argv):
        """One that says something on stdout."""
        p = Process(name, argv, self.dir / f"{name}.log", stdout=subprocess.PIPE)
        self.processes.append(p)
        return p

    def site(self, name, **kwargs):
        s = Site(self, name, **kwargs)
        self.sites.append(s)
        return s

    def watch(self, net, *names):
        """P8: every packet on the devices between these sites, until the test ends, belongs to a TLS connection."""
        seen = Capture(net, *names)

        def judge(kind, *_):
            if kind is None and seen.count == 0:
                raise Failed("no packet crossed")
            if kind is None and seen.complaints():
                raise Failed(f"P8: {seen.complaints()[0]}")
        self.after.push(judge)
        self.after.enter_context(seen)

    def link(self, to_site):
        link = Link(self.address, to_site.port)
        self.links.append(link)
        return link

    def east_west(self, through_link=True, arena_mib=128, **model):
        """East is home of `policy`; west subscribes and dials, through a Link that is returned too."""
        east, west = self.site("east", arena_mib=arena_mib), self.site("west", arena_mib=arena_mib)
        for s in (east, west):
            s.models["policy"] = dict(home="east", **model)
        link = self.link(east) if through_link else None
        west.peers["east"] = f"127.0.0.1:{link.port}" if link else f"{self.address}:{east.port}"
        east.peers["west"] = None
        west.listen = False
        west.subscribe.append(("policy", ["east"]))
        return east, west, link

    def behind(self, west, name="north"):
        """A third site that has `policy` from west, which has it from its home, east."""
        north = self.site(name)
        north.models["policy"] = dict(home="east")
        north.peers["west"] = f"{self.address}:{west.port}"
        north.subscribe.append(("policy", ["west"]))
        north.listen = False
        west.listen = True
        west.peers[name] = None
        return north

    # ---- weights ----

    def weights(self, count):
        """Paths of consecutive versions: real ones where TB_WEIGHTS_DIR has them, else made ones."""
        real = os.environ.get("TB_WEIGHTS_DIR")
        if real and pathlib.Path(real).is_dir():
            files = sorted(pathlib.Path(real).glob("v*.safetensors"))
            if len(files) >= count:
                return files[:count]
        made = self.dir / "weights"
        if not made.is_dir():
            size = os.environ.get("TB_TEST_WEIGHTS_BYTES", "22M")
            subprocess.run([str(MAKE_WEIGHTS), "--out", str(made), "--bytes", size, "--versions", str(count), "--seed", "7"],
                           check=True, timeout=120, stdout=subprocess.DEVNULL)
        return sorted(made.glob("*.safetensors"))[:count]


def made(lab, size, count, *more):
    """Paths of versions of that size; `more` for the program that makes them."""
    folder = lab.dir / f"made-{size}"
    subprocess.run([MAKE_WEIGHTS, "--out", folder, "--bytes", size, "--versions", str(count), "--seed", "7", *more], check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.safetensors"))


def halves(rows):
    """Two lists of tensors of about equal bytes, as two trainer ranks hold them."""
    total, first, second = 0, [], []
    for row in sorted(rows, key=lambda r: -r["bytes"]):
        (first if total <= 0 else second).append(row)
        total += row["bytes"] if first and first[-1] is row else -row["bytes"]
    return first, second


class Trainer:
    """Two ranks of a trainer at a site, each with half of a file's tensors."""

    def __init__(self, lab, site, path, names=("rank0", "rank1"), key="run-a", model="policy", **open_with):
        self.model = model
        self.rows = halves(safetensors_table(path))
        self.ranks = [Worker(lab, n, site, **open_with) for n in names]
        for rank, rows in zip(self.ranks, self.rows):
            rank.ok("register", tensors=rows, file=str(path))
        self.runs = [rank.ok("run", model=model, key=key) for rank in self.ranks]

    def publish(self, number, path=None, **fields):
        """Each rank seals its half; the uid."""
        uids = set()
        for i, rank in enumerate(self.ranks):
            uids.add(self.publish_shard(i, number, path, **fields)["uid"])
        expect("uids of the two shards", len(uids), 1)
        return uids.pop()

    def publish_shard(self, i, number, path=None, **fields):
        rank = self.ranks[i]
        if path is not None:
            rank.ok("fill", tensors=self.rows[i], file=str(path))
        return rank.ok("publish", model=self.model, run=self.runs[i]["run"], number=number, shard=i, shards=2, **fields)


class Rollout:
    """A worker that follows a model into registered memory."""

    def __init__(self, lab, site, name, path, group=None, index=0, count=1, host=None, model="policy", update=0, **open_with):
        self.rows = safetensors_table(path)
        self.model = model
        self.worker = Worker(lab, name, site, host=host, **open_with)
        self.worker.ok("register", tensors=self.rows)
        self.worker.ok("subscribe", model=model, group=group or f"group-{name}", index=index, count=count, memory=0, update=update)

    def stage(self, uid, **fields):
        return self.worker.ok("stage", uid=uid, **fields)

    def activate(self, uid, **fields):
        return self.worker.ok("activate", uid=uid, **fields)

    def check(self, path):
        reply = self.worker.ok("compare", tensors=self.rows, file=str(path))
        expect(f"{self.worker.name}: bytes that differ (first: {reply.get('first')})", reply["differ"], 0)


def flip_in_file(arena, weights, row):
    """Inverts a byte in the middle of a tensor where it stands in an arena file; False when it is not there."""
    data = weights.read_bytes()[row["offset"]:row["offset"] + row["bytes"]]
    with open(arena, "r+b") as f:
        at = f.read().find(data)
        if at < 0:
            return False
        f.seek(at + row["bytes"] // 2)
        f.write(bytes([data[row["bytes"] // 2] ^ 0xFF]))
    return True


def read_and_compare(lab, site, uid, path, name=None):
    """A worker of that site comes, gets the version, which has the file's bytes (P1), and goes."""
    reader = Rollout(lab, site, name or f"reader-{site.name}", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    reader.worker.ok("close")


class SlowDisk:
    """Makes a site's gateway wait in fsync for as long as it is held."""

    def __init__(self, site):
        self.path = site.dir / "hold.sync"
        self.env = {"LD_PRELOAD": str(HELD_SYNC), "TB_HOLD_SYNC": str(self.path),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def hold(self):
        self.path.touch()

    def let_go(self):
        self.path.unlink(missing_ok=True)


class SlowReader:
    """Makes a worker that is started with its `env` stand in the middle of reading another process's memory while it is held."""

    def __init__(self, lab, name):
        self.path = lab.dir / f"{name}.hold"
        self.path.touch()
        self.env = {"LD_PRELOAD": str(HELD_READ), "TB_HOLD_READ": str(self.path),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def let_go(self):
        self.path.unlink(missing_ok=True)


class WallClock:
    """The hour that a site's gateway believes it is: noon (UTC) to begin with. What it measures time with is the machine's, and so is
    what it compares the dates of certificates with, unless `dates`."""

    def __init__(self, site, dates=False):
        self.path = site.dir / "clock.shift"
        self.shift_s = DAY_S // 2 - int(time.time()) % DAY_S
        self.path.write_bytes(struct.pack("=q", self.shift_s))
        site.env = {"LD_PRELOAD": str(SHIFTED_CLOCK), "TB_CLOCK_SHIFT": str(self.path), **({"TB_CLOCK_DATES": "1"} if dates else {}),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def next_day(self):
        self.forward(DAY_S)

    def forward(self, seconds):
        self.shift_s += seconds
        with open(self.path, "r+b", buffering=0) as f:  # eight bytes at once: the gateway has them mapped
            f.write(struct.pack("=q", self.shift_s))


def safetensors(path, tensors, padding=0):
    """Writes {name: (dtype, shape, bytes)} in order."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * padding
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(d for _, _, d in tensors.values()))


def version_folder(into, number, run=1):
    """Where `tombolo subscribe --into` puts that version."""
    return into / f"{run:06}-{number:019}"


class SmallMount:
    """A tmpfs on a folder of its own, in a mount namespace that lives as long as this: the holder ends when its
    input closes, also when the test is killed, and the kernel then takes the mount down."""

    def __init__(self, lab, folder, size="2m"):
        self.dir = folder
        self.dir.mkdir()
        root = os.geteuid() == 0
        script = 'mount -t tmpfs -o size="$2" tombolo-test "$1" && echo mounted && exec cat'
        self.holder = Process("disk", ["unshare", "-m" if root else "-Urm", "sh", "-c", script, "sh", self.dir, size],
                              lab.dir / "disk.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        lab.processes.append(self.holder)
        if self.holder.popen.stdout.readline() != b"mounted\n":
            self.holder.popen.wait(20)
            raise Skipped("no mount namespace here: " + self.holder.log_path.read_text(errors="replace").strip())
        self.enter = ["nsenter", "-t", self.holder.popen.pid, "-m"] + ([] if root else ["-U", "--preserve-credentials"])
        self.seen = pathlib.Path(f"/proc/{self.holder.popen.pid}/root{self.dir}")

    def fill(self):
        with open(self.seen / "ballast", "wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(b"x" * 4096):
                pass

    def make_room(self):
        (self.seen / "ballast").unlink()

    def remount(self, how):
        subprocess.run([str(a) for a in [*self.enter, "mount", "-o", f"remount,{how}", self.dir]], check=True, timeout=20)


class SmallDisk(SmallMount):
    """One for a site's state."""

    def __init__(self, lab, site, size="2m"):
        super().__init__(lab, site.dir / "state", size)
        site.prefix = self.enter
        site.extra["store"] = {"path": self.dir / "store.sqlite"}
        for m in site.models.values():  # a user's own namespace may know its owner as 0
            m.setdefault("publish", sorted({f"unix:{os.getuid()}", "unix:0"}))
            m.setdefault("read", m["publish"])


class HugeMount:
    """A filesystem of huge pages for a site's arena, in a mount namespace. On hugetlbfs its pages are set aside as it
    begins; the holder gives them back when its input closes, also when the test is killed."""

    SCRIPT = """
        pool=/proc/sys/vm/nr_hugepages
        exec 9<$pool && flock 9 || exit 1 # the machine has one pool: another test that changes it waits here
        had=$(cat $pool) || exit 1
        back() { umount "$1"; [ "$2" != hugetlbfs ] || echo $had > $pool; }
        if [ "$2" = hugetlbfs ]; then
            size=$(awk '/^Hugepagesize:/ {print $2 * 1024}' /proc/meminfo)
            echo $((had + $3 / size + 1)) > $pool || exit 1
            if [ $(cat $pool) -le $((had + $3 / size)) ]; then back "$1" "$2"; echo "this machine cannot set aside $3 bytes in huge pages" >&2; exit 1; fi
            mount -t hugetlbfs tombolo-test "$1" || { back "$1" "$2"; exit 1; }
        else
            mount -t tmpfs -o huge=within_size,size="$3" tombolo-test "$1" || exit 1
        fi
        echo mounted; cat > /dev/null; back "$1" "$2"
    """

    def __init__(self, lab, site, kind, count):
        if os.geteuid() != 0:
            raise Skipped("only root may set huge pages aside")
        self.dir = site.dir / f"huge-{kind}"
        self.dir.mkdir()
        self.log = lab.dir / f"huge-{kind}.log"
        with open(self.log, "wb") as log:
            self.holder = subprocess.Popen(["unshare", "-m", "sh", "-c", self.SCRIPT, "sh", str(self.dir), kind, str(count)],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        if self.holder.stdout.readline() != b"mounted\n":
            self.holder.wait(20)
            raise Skipped(f"no {kind} with huge pages here: " + self.log.read_text(errors="replace").strip())
        if kind == "tmpfs" and not self.gives():
            self.close()
            raise Skipped("this machine's free memory is in too small pieces for a huge page now")
        site.prefix = ["nsenter", "-t", self.holder.pid, "-m"]
        site.arena_path = self.dir / "arena"

    def gives(self):
        """Whether a file on it gets a huge page: nobody has set any aside for tmpfs."""
        probe = pathlib.Path(f"/proc/{self.holder.pid}/root{self.dir}/probe")
        with open(probe, "w+b") as f:
            f.truncate(8 << 20)
            with mmap.mmap(f.fileno(), 8 << 20) as m:
                m[:] = bytes(len(m))
                mine = pathlib.Path("/proc/self/smaps").read_text().split(str(self.dir / "probe"), 1)
        probe.unlink()
        return any(int(kb) > 0 for kb in re.findall(r"ShmemPmdMapped: +(\d+) kB", mine[-1])[:1])

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(20)


class Veth:
    """Two namespaces and a pair of devices: a link without an emulator."""

    PREFIX = "tombolo-veth-"

    def __init__(self):
        if os.geteuid() != 0:
            raise Skipped("only root makes network namespaces")
        self.names = {site: f"{self.PREFIX}{os.getpid()}-{site}" for site in ("east", "west")}

    def __enter__(self):
        for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines():
            made = re.match(rf"{self.PREFIX}(\d+)-", line)
            if made and not os.path.exists(f"/proc/{made[1]}"):
                subprocess.run(["ip", "netns", "delete", line.split()[0]])
        try:
            self.make()
        except Skipped:
            self.__exit__()  # what was made before the step that failed
            raise
        return self

    def make(self):
        for i, (site, name) in enumerate(self.names.items()):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
            if i == 1:
                self.ip("link", "add", "wan0", "netns", self.names["east"], "type", "veth", "peer", "name", "wan0", "netns", name)
        for site, name in self.names.items():
            self.ip("-n", name, "addr", "add", self.address(site) + "/24", "dev", "wan0")
            self.ip("-n", name, "link", "set", "wan0", "up")

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    @staticmethod
    def ip(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"ip {' '.join(words)}: {done.stderr.strip()}")

    @staticmethod
    def address(site):
        return {"east": "10.202.0.1", "west": "10.202.0.2"}[site]

    def enter(self, site, argv):
        return ["ip", "netns", "exec", self.names[site], *argv]

    def link(self, state):
        self.ip("-n", self.names["west"], "link", "set", "wan0", state)


class Cores:
    """How busy others keep the machine: a gateway of ours that spins is no excuse for it."""

    def __init__(self):
        self.began = self.ticks()

    @staticmethod
    def ours():
        """Ticks of this process and all that came from it."""
        ticks, parents = {}, {}
        for process in leavings.processes():
            with contextlib.suppress(OSError):  # it just ended
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                pid = int(process.name)
                parents[pid] = int(fields[1])
                ticks[pid] = sum(int(n) for n in fields[11:15])  # with the children that it waited for
        total = 0
        for pid, used in ticks.items():
            while pid not in (os.getpid(), 0, None):
                pid = parents.get(pid)
            total += used if pid == os.getpid() else 0
        return total

    @classmethod
    def ticks(cls):
        fields = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4], cls.ours()  # all, idle, ours

    def taken(self):
        """Why a time since then says little; empty: it does."""
        all_ticks, idle, ours = (now - then for now, then in zip(self.ticks(), self.began))
        busy = 1 - (idle + max(ours, 0)) / max(all_ticks, 1)
        return f"others took {busy:.0%} of this machine's cores" if busy > OTHERS_BUSY else ""


def up(*sites):
    for s in sites:
        s.start()
    for s in sites:
        for peer in s.peers:
            s.wait_link(peer)


def four_rollouts(lab, west, path):
    """Two reader groups of two members; their hosts differ, so the site forms a chain."""
    return [Rollout(lab, west, f"w{i}", path, group=f"engine{i // 2}", index=i % 2, count=2, host=f"host{i}") for i in range(4)]


def follow(rollouts, uid, path):
    for r in rollouts:
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
    for r in rollouts:
        expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
    for r in rollouts:
        r.activate(uid)
    for r in rollouts:
        r.check(path)


SCENARIOS = {}


def scenario(fn):
    SCENARIOS[fn.__name__] = fn
    return fn


def stays(prefix):
    """What the test has left: lines."""
    lines = [str(folder) for folder in leavings.folders(prefix)]
    for pid in leavings.marked(*leavings.mark_of(prefix)):
        with contextlib.suppress(OSError):
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines += [f"process {pid}: {command[:120]}"] if command else []
    return lines


def run(name):
    """One scenario; the exit code. Nothing of it stays, however it ends: a watchdog clears up where this process is killed. What a scenario that
    went well leaves is a failure of it."""
    started = time.monotonic()
    prefix, keep = prefix_of_this_test(), os.environ.get("TB_KEEP") == "1"
    if not keep:
        leavings.watch(os.getpid(), prefix)
    try:
        with Lab() as lab:
            SCENARIOS[name](lab)
        if not keep:
            wait_for("nothing of this test stays", lambda: not stays(prefix))
        print(f"{name}: ok in {time.monotonic() - started:.1f} s")
        return 0
    except Skipped as skipped:
        print(f"{name}: skipped: {skipped}")
        return 77
    except Failed as failed:
        print(f"{name}: FAILED: {failed}", *stays(prefix), sep="\n", file=sys.stderr)
        return 1
    finally:
        leavings.end_all(lambda: leavings.marked(*leavings.mark_of(prefix)))
        if not keep:
            leavings.clear_folders(prefix)


def main():
    if len(sys.argv) == 2 and sys.argv[1] == "--list":
        print("\n".join(SCENARIOS))
        return 0
    if sys.argv[1:2] == ["--expect"]:
        if sorted(sys.argv[2:]) != sorted(SCENARIOS):
            print("listed in CMakeLists.txt and here differ:", set(sys.argv[2:]) ^ set(SCENARIOS), file=sys.stderr)
            return 1
        return 0
    for name in sys.argv[1:]:
        code = run(name)
        if code != 0:
            return code
    return 0
