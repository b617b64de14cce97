"""wanlab: the sites of a scenario as network namespaces, joined by the emulated WAN or by the kernel's netem.

    with wanlab.lab("ocean") as wan:
        subprocess.run(wan.enter("east", ["ping", "-c", "1", wan.address("west")]))
    print(wan.void, wan.counters["paths"])

Needs root. However the process that made a lab ends, nothing of the lab stays: at its end, by a watchdog that outlives it, and, should
that be killed as well, at the next start."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))
import leavings  # noqa: E402
from leavings import end_all, start_time  # noqa: E402

PREFIX = "tbw"
MAKER = re.compile(rf"{PREFIX}-(\d+)-(\d+)-")  # a lab's prefix: its maker's process number, and when that started
FOLDER = "tombolo-wan."
NAMELESS = re.compile(r"[a-z0-9_]{8}")  # behind FOLDER: an older release's, whose maker cannot be told
DEVICE = "wan0"
NETWORK = "10.201.0"
VOID = 75  # the exit code of a run in which the emulator fell behind


class LabError(Exception):
    """Why there is no lab; the text says what to do."""


class ScenarioError(LabError):
    """The file that was asked for is no scenario, whatever this machine can do."""


def build_folder():
    if "TB_BUILD_DIR" in os.environ:
        return pathlib.Path(os.environ["TB_BUILD_DIR"])
    for name in ("release", "dev", "quickstart"):
        if (ROOT / "build" / name / "sim/wan/tombolo-wan-emulator").exists():
            return ROOT / "build" / name
    return ROOT / "build/release"


def emulator():
    program = build_folder() / "sim/wan/tombolo-wan-emulator"
    if not program.exists():
        raise LabError(f"there is no {program}: cmake --preset release && cmake --build --preset release --target tombolo-wan-emulator")
    return str(program)


def why_not():
    """None, or the reason why this machine cannot have a lab."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    return None


def shipped():
    return sorted(path.stem for path in (HERE / "scenarios").glob("*.yaml"))


def find(scenario):
    """The file of a shipped name or of a path."""
    for path in (HERE / "scenarios" / f"{scenario}.yaml", pathlib.Path(scenario)):
        if path.is_file():
            return path
    raise ScenarioError(f"{scenario} is neither a file nor one of {', '.join(shipped())}")


def plan(scenario):
    """The scenario's values, checked, in bits, bytes, ns and parts in 10^9."""
    done = subprocess.run([emulator(), "--plan", str(find(scenario))], capture_output=True, text=True)
    if done.returncode != 0:
        raise ScenarioError(done.stderr.strip())
    return json.loads(done.stdout)


# ---- netem ---------------------------------------------------------------------------------------


def percent(parts):
    return f"{parts / 1e7:.7f}".rstrip("0").rstrip(".") + "%"


NO_LIMIT = "100gbit"  # as a rate


def netem_words(settings, mtu, rate=True, change=False):
    """A direction as the words after `netem`. Things that netem cannot do (netem_omits) are left out. A change names also what is 0: of
    corruption, reordering and the rate netem would keep what it had.

    netem keeps jitter in order where it has a rate, and nowhere else: where order is to be kept and there is no rate, one that limits nothing
    keeps it.

    netem counts its limit in packets and includes those under way, so the queue in bytes becomes packets of the MTU, and what the rate
    keeps under way for the delay is added. Its jitter is even around the delay; ours is added to it."""
    s = settings
    words = []
    if s["cut"]:
        return ["limit", "1000", "loss", "100%"]
    waiting = s["queue"] + (s["rate"] * (s["delay"] + s["jitter"]) / 8e9 if s["rate"] else 64 << 20)
    words += ["limit", str(max(64, round(waiting / mtu)))]
    if s["delay"] or s["jitter"]:
        words += ["delay", f"{(s['delay'] + s['jitter'] / 2) / 1e3:.0f}us"]
        if s["jitter"]:
            words += [f"{s['jitter'] / 2e3:.0f}us"]
    if s["burst_enter"]:
        words += ["loss", "gemodel", percent(s["burst_enter"]), percent(s["burst_leave"]), percent(s["burst_loss"]), percent(s["loss"])]
    elif s["loss"]:
        words += ["loss", percent(s["loss"])]
    for ours, theirs in (("duplicate", "duplicate"), ("corrupt", "corrupt"), ("reorder", "reorder")):
        if s[ours] or (change and ours in ("corrupt", "reorder")):
            words += [theirs, percent(s[ours])]
    if rate and s["rate"]:
        words += ["rate", f"{s['rate']}bit"]
    elif s["jitter"] and s["keep_order"]:
        words += ["rate", NO_LIMIT]
    elif change:
        words += ["rate", "0bit"]
    return words


def netem_omits(what):
    """The things that a scenario asks for at some time and netem does not do, a line each."""
    for p in what["paths"]:
        ever = {key: {p["settings"][key], *(c["to"].get(key, 0) for c in p["changes"])} for key in ("rate", "jitter", "mtu")}
        orders = {p["settings"]["keep_order"], *(c["to"].get("keep_order", 1) for c in p["changes"])}
        way = f"from {p['from']} to {p['to']}"
        if any(ever["jitter"]) and any(ever["rate"]) and not p["shared"] and 0 in orders:
            yield f"{way} jitter overtakes nothing: netem keeps order where it has a rate"
        if any(ever["mtu"]):
            yield f"{way} no packet is dropped for its length"


def hub_beside(sites):
    """The device between the sites has a name that none of them has."""
    name = "hub"
    while name in sites:
        name = f"the-{name}"
    return name


class Netem:
    """The tc commands of a scenario. Each site has the veth wan0 to a hub; its egress has a class for each other site, with netem in it.
    Paths that share a queue leave their rate to an ifb device of the hub that all of them pass."""

    def __init__(self, what, names, hub):
        self.what, self.names, self.hub = what, names, hub
        self.index = {site["name"]: i for i, site in enumerate(what["sites"])}

    def leaf(self, verb, path, settings):
        to = self.index[path["to"]]
        return ["tc", "-n", self.names[path["from"]], "qdisc", verb, "dev", DEVICE, "parent", f"1:{to + 1:x}", "handle", f"1{to + 1}:",
                "netem", *netem_words(settings, self.what["mtu"], not path["shared"], verb == "change")]

    def rates(self, verb, path, settings):
        rate, queue = settings["rate"], settings["queue"]
        limit = max(64, round(queue / self.what["mtu"]))
        return ["tc", "-n", self.hub, "qdisc", verb, "dev", f"ifb{path['queue_id']}", "root", "netem", "limit", str(limit), "rate", f"{rate}bit"]

    def set_up(self):
        for i, site in enumerate(self.what["sites"]):
            ns, port = self.names[site["name"]], f"port{i}"
            yield ["ip", "link", "add", DEVICE, "netns", ns, "mtu", str(self.what["mtu"]), "type", "veth", "peer", "name", port,
                   "netns", self.hub, "mtu", str(self.what["mtu"])]
            # Packets, not batches of them, are what is lost and delayed.
            yield ["ip", "netns", "exec", ns, "ethtool", "-K", DEVICE, "tso", "off", "gso", "off", "gro", "off"]
            yield ["ip", "-n", self.hub, "addr", "add", f"{NETWORK}.254/32", "dev", port]
            yield ["ip", "-n", self.hub, "link", "set", port, "up"]
            yield ["ip", "-n", self.hub, "route", "add", f"{NETWORK}.{i + 1}/32", "dev", port]
        yield ["ip", "netns", "exec", self.hub, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward; "
               "for f in /proc/sys/net/ipv4/conf/*/proxy_arp; do echo 1 >$f; done; "
               "for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 >$f; done"]

    def shape(self):
        for site in self.what["sites"]:
            yield ["tc", "-n", self.names[site["name"]], "qdisc", "add", "dev", DEVICE, "root", "handle", "1:", "htb"]
        shared = set()
        for path in self.what["paths"]:
            ns, to = self.names[path["from"]], self.index[path["to"]]
            yield ["tc", "-n", ns, "class", "add", "dev", DEVICE, "parent", "1:", "classid", f"1:{to + 1:x}", "htb", "rate", "100gbit",
                   "quantum", "60000"]
            yield self.leaf("add", path, path["settings"])
            match = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{NETWORK}.{to + 1}/32"]
            yield ["tc", "-n", ns, "filter", "add", "dev", DEVICE, "parent", "1:", *match, "flowid", f"1:{to + 1:x}"]
            if not path["shared"] or not path["settings"]["rate"]:
                continue
            ifb, port = f"ifb{path['queue_id']}", f"port{self.index[path['from']]}"
            if ifb not in shared:
                shared.add(ifb)
                yield ["ip", "-n", self.hub, "link", "add", ifb, "type", "ifb"]
                yield ["ip", "-n", self.hub, "link", "set", ifb, "up"]
                yield self.rates("add", path, path["settings"])
            if port not in shared:
                shared.add(port)
                yield ["tc", "-n", self.hub, "qdisc", "add", "dev", port, "handle", "ffff:", "ingress"]
            yield ["tc", "-n", self.hub, "filter", "add", "dev", port, "parent", "ffff:", *match, "action", "mirred", "egress",
                   "redirect", "dev", ifb]

    def events(self):
        """(when in s, commands), for ever if something repeats: one loop of the schedule after another."""
        changes = [(c, path) for path in self.what["paths"] for c in path["changes"]]
        now = {id(path): dict(path["settings"]) for path in self.what["paths"]}
        due = [c["at_ns"] for c, _ in changes]
        while any(at is not None for at in due):
            first = min(at for at in due if at is not None)
            commands = []
            for i, (change, path) in enumerate(changes):
                if due[i] != first:
                    continue
                now[id(path)].update(change["to"])
                commands.append(self.leaf("change", path, now[id(path)]))
                if path["shared"] and change["to"].keys() & {"rate", "queue"}:
                    commands.append(self.rates("change", path, now[id(path)]))
                due[i] = first + change["every_ns"] if change["every_ns"] else None
            yield first / 1e9, commands


def netem_script(scenario):
    """The whole of a scenario as a shell script for a machine whose kernel has netem."""
    what = plan(scenario)
    names = {site["name"]: site["name"] for site in what["sites"]}
    hub = hub_beside(names)
    netem = Netem(what, names, hub)
    lines = [f"# {scenario}, as namespaces {' '.join(names)} around {hub}; `ip netns exec {what['sites'][0]['name']} COMMAND` enters one"]
    lines += [f"# not as the scenario says: {line}" for line in netem_omits(what)]
    lines += [f"ip netns add {name}" for name in [*names.values(), hub]]
    lines += [shlex.join(c) for c in netem.set_up()]
    for i, site in enumerate(what["sites"]):
        lines += [shlex.join(c) for c in site_commands(what, site, names[site["name"]], i)]
    lines += [shlex.join(c) for c in netem.shape()]
    last = 0.0
    for turn, (at, commands) in enumerate(netem.events()):
        if turn == 64:
            lines.append("# ... and so on")
            break
        lines += [f"sleep {at - last:g}", *[shlex.join(c) for c in commands]]
        last = at
    return "\n".join(lines) + "\n"


# ---- sites ---------------------------------------------------------------------------------------


def site_commands(what, site, ns, index):
    """Address, memory and congestion control of a site whose device is there."""
    yield ["ip", "-n", ns, "link", "set", "lo", "up"]
    yield ["ip", "-n", ns, "addr", "add", f"{NETWORK}.{index + 1}/24", "dev", DEVICE]
    yield ["ip", "-n", ns, "link", "set", DEVICE, "mtu", str(what["mtu"]), "txqueuelen", "8192", "up"]
    sets = ["net.ipv4.tcp_no_metrics_save=1"]
    sets += [f"net.ipv4.tcp_{key}={site[key]}" for key in ("rmem", "wmem") if site[key]]
    yield ["ip", "netns", "exec", ns, "sysctl", "-q", "-w", *sets]
    if site["congestion"]:  # the sysctl is refused inside a namespace; a route may say it
        yield ["ip", "-n", ns, "route", "change", f"{NETWORK}.0/24", "dev", DEVICE, "proto", "kernel", "scope", "link",
               "src", f"{NETWORK}.{index + 1}", "congctl", site["congestion"]]


def do(argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"`{shlex.join(argv)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def prefix_of(pid):
    return f"{PREFIX}-{pid}-{start_time(pid)}-"


def receivers():
    """The kernel's threads that receive for devices of labs."""
    found = set()
    for process in leavings.processes():
        with contextlib.suppress(OSError):
            pid, name = (process / "stat").read_text(encoding="ascii", errors="replace").split(")", 1)[0].split(" (", 1)
            if name.startswith(f"napi/{DEVICE}"):
                found.add(int(pid))
    return found


def take_down(prefix, grace_s=3.0):
    """Ends what runs in the namespaces that begin so, and deletes them."""
    names = [line.split()[0] for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()]
    names = [name for name in names if name.startswith(prefix)]

    def inside():
        for name in names:
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                yield int(pid)

    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + grace_s
        pids = set(inside())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while pids and time.monotonic() < until:
            time.sleep(0.02)
            pids = set(inside())
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def sweep():
    """Takes down what labs have left that nobody could: runner, keeper and watchdog were all killed. The prefixes of those labs, and
    folders of which only the path is known.

    A runner that came so far as to take its lab down has removed the folder; one that is there without its maker has processes to end too."""
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    names = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    folders = list(pathlib.Path(tempfile.gettempdir()).glob(f"{FOLDER}{PREFIX}-*"))
    makers = {MAKER.match(name) for name in [*names, *(folder.name.removeprefix(FOLDER) for folder in folders)]} - {None}
    orphans = {maker[0] for maker in makers if start_time(maker[1]) != maker[2]}
    for prefix in orphans:
        own = [folder for folder in folders if folder.name.startswith(FOLDER + prefix)]
        end_all(lambda own=own: set().union(*map(marked, own)))
        take_down(prefix)
        for folder in own:
            shutil.rmtree(folder, ignore_errors=True)
    return sorted(f"{prefix}*" for prefix in orphans) + sweep_nameless()


def sweep_nameless(age_s=60):
    """Removes folders that do not say whose they are, and that nobody has: no process names one, and a lab that begins has one for less
    than a minute before its emulator does. The names that were removed."""
    removed = []
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with contextlib.suppress(OSError):
            own = folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid()
            if own and NAMELESS.fullmatch(folder.name.removeprefix(FOLDER)) and time.time() - folder.stat().st_mtime > age_s and not named(folder):
                shutil.rmtree(folder)
                removed.append(str(folder))
    return sorted(removed)


def named(folder):
    """Some process has the folder in its command line or its environment."""
    for process in leavings.processes():
        for what in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if f"{folder}/".encode() in (process / what).read_bytes():
                    return True
    return False


def marked(folder):
    """The processes that COMMAND of the lab with this folder began, by what their environment says."""
    return leavings.marked("TB_WAN_LAB", f"{folder}/")


def clear_away(prefix, folder, found):
    """The things that a killed runner has left."""
    end_all(found)
    take_down(prefix)
    shutil.rmtree(folder, ignore_errors=True)


def watchdog(prefix, folder):
    """A child in a session of its own that waits until this process is gone, and then takes the lab down. Returns its pid and the end of the
    pipe that this process holds; "done" written into it says that there is nothing left to do."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child != 0:
        os.close(ours)
        os.set_inheritable(theirs, False)
        return child, theirs
    try:
        leavings.become_watchdog(ours)
        told = b""
        while part := os.read(ours, 4096):
            told += part
        if told != b"done":
            clear_away(prefix, folder, lambda: marked(folder))
    finally:
        os._exit(0)


class Lab:
    """The sites of one scenario, up."""

    def __init__(self, scenario, seed, netem, folder):
        self.scenario, self.seed, self.netem, self.folder = str(scenario), seed, netem, pathlib.Path(folder)
        self.plan = plan(scenario)
        self.prefix = prefix_of(os.getpid())
        if subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.find(self.prefix) >= 0:
            raise LabError("this process has a lab already; one at a time")
        self.names = {site["name"]: self.prefix + site["name"] for site in self.plan["sites"]}
        self.counters_file = self.folder / "counters.json"
        self.lab_file = self.folder / "lab.json"
        self.counters, self.void, self.why = {}, False, ""
        self.process = None
        self.stop = threading.Event()
        self.turner = None

    def netns(self, site):
        return self.names[site]

    def address(self, site):
        return f"{NETWORK}.{list(self.names).index(site) + 1}"

    def enter(self, site, argv):
        return ["ip", "netns", "exec", self.names[site], *argv]

    def path(self, origin, to):
        return next(p["settings"] for p in self.plan["paths"] if (p["from"], p["to"]) == (origin, to))

    def start(self):
        for name in self.names.values():
            do(["ip", "netns", "add", name])
        if self.netem:
            hub = self.prefix + hub_beside(self.names)
            do(["ip", "netns", "add", hub])
            shaper = Netem(self.plan, self.names, hub)
            for argv in shaper.set_up():
                do(argv)
        else:
            self.start_emulator()
        for i, site in enumerate(self.plan["sites"]):
            for argv in site_commands(self.plan, site, self.names[site["name"]], i):
                do(argv)
        if self.netem:
            for argv in shaper.shape():
                do(argv)
            self.turner = threading.Thread(target=self.follow, args=(shaper.events(), time.monotonic()), daemon=True)
            self.turner.start()
            return
        # A site's TCP runs in a thread of its own (NAPI's), not inside of the emulator's writes:
        # those cost a third then, and no packet that is due waits for another one's TCP. A kernel
        # before 5.12 has no such thread and is only slower.
        before = receivers()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "exec", name, "sh", "-c", f"echo 1 >/sys/class/net/{DEVICE}/threaded"], stderr=subprocess.DEVNULL)
        for pid in receivers() - before:
            with contextlib.suppress(OSError):  # before others, as a card's interrupt would be, and behind the emulator
                os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))

    def start_emulator(self):
        argv = [emulator(), "--counters", str(self.counters_file), "--seed", str(self.seed), str(find(self.scenario)), *self.names.values()]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        if not ready or self.process.stdout.readline().strip() != "ready":
            raise LabError("the emulator did not start; it says why above")

    def follow(self, events, began):
        """A schedule by tc."""
        for at, commands in events:
            if self.stop.wait(max(0.0, began + at - time.monotonic())):
                return
            for argv in commands:
                subprocess.run(argv, stdout=subprocess.DEVNULL)

    def counters_written(self):
        """Tells one writing of the counters from the next; None: there was none."""
        with contextlib.suppress(FileNotFoundError):
            stat = self.counters_file.stat()
            return stat.st_ino, stat.st_mtime_ns
        return None

    def read_counters(self, timeout_s=20):
        """The counters as they are now. An emulator that does not say them is no reason to take older ones."""
        if self.netem:
            return {}
        before = self.counters_written()
        self.process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + timeout_s
        while self.counters_written() == before:
            if self.process.poll() is not None:
                raise LabError(f"the emulator ended with {self.process.returncode} and did not say its counters")
            if time.monotonic() > until:
                raise LabError(f"the emulator did not say its counters within {timeout_s:g} s; is it stopped, or the machine overloaded?")
            time.sleep(0.01)
        return json.loads(self.counters_file.read_text(encoding="utf-8"))

    def turn(self, origin, to, both=True, **settings):
        """Changes a path at once, and back too unless not `both`: turn("east", "west", cut="yes"). When it returns, it holds."""
        if self.process is None:
            raise LabError("netem has a schedule only")
        where = f"between: [{origin}, {to}]" if both else f"from: {origin}, to: {to}"
        words = "".join(f", {key}: {value}" for key, value in settings.items())
        self.process.stdin.write(f"{{{where}{words}}}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "turned":
            raise LabError(answer or "the emulator is gone")

    def finish(self):
        self.stop.set()
        if self.turner is not None:
            self.turner.join()
        if self.process is None:
            return
        # Counted before the sites' processes end: what they still send then is not the run.
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.returncode == 0:
            self.counters = json.loads(self.counters_file.read_text(encoding="utf-8"))
            self.void, self.why = self.counters["void"], self.counters["why"]
        else:
            self.void, self.why = True, f"the emulator ended with {self.process.returncode}"

    def describe(self):
        paths = []
        for p in self.plan["paths"]:
            s = p["settings"]
            paths.append({"from": p["from"], "to": p["to"], "rate_bit": s["rate"], "delay_ms": s["delay"] / 1e6, "loss": s["loss"] / 1e9,
                          "queue_bytes": s["queue"], "settings": s})
        return {
            "scenario": self.scenario, "seed": self.seed, "netem": self.netem, "mtu": self.plan["mtu"],
            "sites": [{"name": site["name"], "netns": self.names[site["name"]], "address": self.address(site["name"]),
                       "tcp_rmem": site["rmem"], "tcp_wmem": site["wmem"], "congestion": site["congestion"]} for site in self.plan["sites"]],
            "paths": paths, "counters": str(self.counters_file), "emulator_pid": self.process.pid if self.process else None,
        }


@contextlib.contextmanager
def lab(scenario, seed=1, netem=False):
    """The sites of a scenario while the block runs. Afterwards .counters, .void and .why say how it went."""
    reason = why_not()
    if reason:
        raise LabError(reason)
    sweep()
    with tempfile.TemporaryDirectory(prefix=FOLDER + prefix_of(os.getpid()), ignore_cleanup_errors=True) as folder:
        wan = Lab(scenario, seed, netem, folder)
        guard, pipe = watchdog(wan.prefix, folder)
        try:
            wan.start()
            yield wan
        finally:
            try:
                wan.finish()
            finally:
                take_down(wan.prefix)
                with contextlib.suppress(BrokenPipeError):  # it was killed
                    os.write(pipe, b"done")
                os.close(pipe)
                os.waitpid(guard, 0)


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def descendants(pid):
    """All that came of a process and still is, itself not counted."""
    found, todo = [], [pid]
    while todo:
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{todo.pop()}/task").iterdir():
                found += (new := [int(word) for word in (task / "children").read_text(encoding="ascii").split()])
                todo += new
    return found


def keep(command, wan, alone, lifeline, told):
    """The process between the runner and COMMAND. A process that COMMAND leaves behind becomes its child, so that it can end all of it when
    the runner is gone (its lifeline has ended), whatever became of the watchdog; COMMAND ends with it in turn."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def as_it_was():
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
    try:
        child = subprocess.Popen(command, env={**os.environ, "TB_WAN_LAB": str(wan.lab_file)}, start_new_session=alone, preexec_fn=as_it_was)
    except OSError as error:
        print(f"sim/wan/run: {command[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    os.write(told, f"{child.pid}".encode())
    os.close(told)
    gone = os.pidfd_open(child.pid)
    ready, _, _ = select.select([gone, lifeline], [], [])
    if gone in ready:
        code = child.wait()
        return code if code >= 0 else 128 - code
    clear_away(wan.prefix, wan.folder, lambda: marked(wan.folder) | set(descendants(os.getpid())))
    return 137


def start_kept(command, wan, alone):
    """(the keeper's pid, COMMAND's pid or None, the lifeline)."""
    lifeline, ours = os.pipe()
    from_keeper, told = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        code = 127
        try:
            # Neither the watchdog's pipe nor the emulator's standard input may stay open here:
            # their ends are what says that the runner is gone.
            for fd in range(3, 4096):
                if fd not in (lifeline, told):
                    with contextlib.suppress(OSError):
                        os.close(fd)
            os.set_inheritable(told, False)
            code = keep(command, wan, alone, lifeline, told)
        finally:
            os._exit(code)
    os.close(lifeline)
    os.close(told)
    said = os.read(from_keeper, 32)
    os.close(from_keeper)
    return keeper, int(said) if said else None, ours


def signal_command(pid, number, alone):
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if alone else os.kill)(pid, number)


def run(scenario, command, seed, netem, json_file):
    """Runs a command beside the sites. Its exit code, or VOID."""
    with lab(scenario, seed, netem) as wan:
        for line in netem_omits(wan.plan) if netem else ():
            print(f"sim/wan/run: not as the scenario says: {line}", file=sys.stderr)
        wan.lab_file.write_text(json.dumps(wan.describe()), encoding="utf-8")
        # In a session of its own, so that all of it can be ended; a terminal's own commands stay
        # with the terminal.
        alone = not sys.stdin.isatty()
        keeper, child, lifeline = start_kept(command, wan, alone)
        try:
            status = os.waitpid(keeper, 0)[1]
        except BaseException:
            # Asked to end: COMMAND first, which may take its time, then all that it left behind.
            if child is not None:
                signal_command(child, signal.SIGTERM, alone)
            os.close(lifeline)
            os.waitpid(keeper, 0)
            end_all(lambda: marked(wan.folder))  # COMMAND may have ended before its keeper saw that the lifeline had
            raise
        os.close(lifeline)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            end_all(lambda: marked(wan.folder))
            code = 128 - code
    if json_file:
        pathlib.Path(json_file).write_text(
            json.dumps({**wan.describe(), "exit_code": code, "void": wan.void, "why": wan.why, "counters": wan.counters}) + "\n", encoding="utf-8")
    if wan.void:
        print(f"sim/wan/run: VOID: {wan.why}; what was measured is not {scenario}", file=sys.stderr)
        return VOID if code == 0 else code
    return code
