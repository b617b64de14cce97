"""Real processes for system tests: sites, gateways, workers, and the scenarios that use them.

Everything stands in one temporary folder and on loopback, and ends with the test. Only processes
that were started here are ended, by their id. `waiting`, `relay`, `machine` and `weight_files` are
the parts below; tests take their names from here."""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from waiting import BUILD, PATIENCE, PATIENCE_MS, PATIENCE_S, SOURCE  # noqa: F401
from waiting import Failed, Process, Skipped, expect, prefix_of_this_test, wait_for  # noqa: F401
import leavings  # of sim/, which `waiting` knows
import signing
from capture import Capture
from machine import Cores, HugeMount, SlowDisk, SlowReader, SmallDisk, SmallMount, Veth, WallClock, opened_to_others  # noqa: F401
from relay import CRAWL, Dns, Link  # noqa: F401
from weight_files import MAKE_WEIGHTS, flip_in_file, halves, made  # noqa: F401
from weight_files import safetensors, safetensors_table, version_folder  # noqa: F401

TOMBOLO = BUILD / "gateway/cli/tombolo"
TOMBOLOD = BUILD / "gateway/daemon/tombolod"
WORKER = BUILD / "tests/system/tombolo-test-worker"


class Worker(Process):
    PROGRAM = (WORKER,)  # that takes its orders as lines of JSON

    def __init__(self, lab, name, site=None, host=None, env=None, **open_with):
        prefix = site.worker_prefix if site is not None else []
        super().__init__(name, [*prefix, *self.PROGRAM], lab.dir / f"{name}.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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
        self.starts, self.tombolo, self.tombolod, self.old = 0, TOMBOLO, TOMBOLOD, False  # old: a release that signs nothing (old_release.py)
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
        """Its gateway and workers are started through the argv `enter`, into a network of their
        own where it has this address."""
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
            keys = {**signing.of_peer(self, site), **self.peer_keys.get(site, {})}
            lines += [f"    {k}: {json.dumps(v) if isinstance(v, list) else v}" for k, v in keys.items()]
        lines.append("models:")
        for model, m in self.models.items():
            lines.append(f"  {model}:")
            lines.append(f"    home: {m['home']}")
            lines.append(f"    keep: {m.get('keep', 2)}")
            lines += [f"    {k}: {m[k] if isinstance(m[k], str) else json.dumps(m[k])}" for k in ("quota", "policy", "weight", "durable", "groups", "may_fence", "publishers") if k in m]
            lines += signing.of_model(self, m)
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
        self.daemon = Process(f"tombolod-{self.name}", [*self.prefix, self.tombolod, "--config", config, *first, *self.arguments],
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
            s.settimeout(PATIENCE_S)
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
        """All of it is here, and readers hear of it."""
        wait_for(f"{self.name} holds {uid}", lambda: self.holds(uid, model) and not self.version(uid, model)["awaits_signature"])

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
        done = subprocess.run([*prefix, str(self.tombolo), *map(str, args)], env=env, capture_output=True, text=True,
                              timeout=PATIENCE_S * 2, **kwargs)
        if check and done.returncode != 0:
            raise Failed(f"tombolo {' '.join(map(str, args))} exited {done.returncode}: {done.stderr}")
        return done


class Lab:
    """A temporary world. Use as a context; on failure the daemons' logs are shown."""

    PREFIX = None  # of its folders, where they are not a test's

    def __init__(self):
        prefix = self.PREFIX or prefix_of_this_test()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
        shm = pathlib.Path(os.environ.get("TB_TEST_SHM", "/dev/shm"))
        base = shm if shm.is_dir() and os.access(shm, os.W_OK) else self.dir
        self.arena_dir = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        # An address of this process alone, so that a port that was free stays free until a gateway
        # listens on it.
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
        if (kind is not None and not issubclass(kind, (Skipped, SystemExit, GeneratorExit))) or complaints:
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
        """Workers end by end of input, then daemons by SIGTERM, so that leaks are seen; what
        went wrong with that."""
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
        """One that nobody listens on, and that was not given out before: the kernel may offer a
        closed one again."""
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
        done = subprocess.run([str(TOMBOLO), *map(str, args)], capture_output=True, text=True, timeout=PATIENCE_S)
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
        """P8: every packet on the devices between these sites, until the test ends, belongs to a
        TLS connection."""
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
        for site in [s for s in self.sites if s.name in west.peers]:  # west relays what each of them holds
            site.peer_keys.setdefault("west", {}).setdefault("speaks_for", []).append(name)
        north.peer_keys["west"] = {"speaks_for": list(west.peers)}
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
                           check=True, timeout=2 * PATIENCE_S, stdout=subprocess.DEVNULL)
        return sorted(made.glob("*.safetensors"))[:count]


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

    def __init__(self, lab, site, name, path, group=None, index=0, count=1, host=None, model="policy", update=0, prove=0, rows=None,
                 home_ca=None, **open_with):
        self.rows = rows or safetensors_table(path)
        self.model = model
        self.worker = Worker(lab, name, site, host=host, **open_with)
        self.worker.ok("register", tensors=self.rows)
        self.worker.ok("subscribe", model=model, group=group or f"group-{name}", index=index, count=count, memory=0, update=update,
                       prove=prove, **({"home_ca": str(home_ca)} if home_ca else {}))

    def stage(self, uid, **fields):
        return self.worker.ok("stage", uid=uid, **fields)

    def activate(self, uid, **fields):
        return self.worker.ok("activate", uid=uid, **fields)

    def check(self, path):
        reply = self.worker.ok("compare", tensors=self.rows, file=str(path))
        expect(f"{self.worker.name}: bytes that differ (first: {reply.get('first')})", reply["differ"], 0)


def read_and_compare(lab, site, uid, path, name=None):
    """A worker of that site comes, gets the version, which has the file's bytes (P1), and goes."""
    reader = Rollout(lab, site, name or f"reader-{site.name}", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    reader.worker.ok("close")


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
    """The things that the test has left: lines."""
    lines = [str(folder) for folder in leavings.folders(prefix)]
    for pid in leavings.marked(*leavings.mark_of(prefix)):
        with contextlib.suppress(OSError):
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines += [f"process {pid}: {command[:120]}"] if command else []
    return lines


def run(name):
    """One scenario; the exit code. Nothing of it stays, however it ends: a watchdog clears up
    where this process is killed. Things that a scenario which went well leaves are a failure of it."""
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
