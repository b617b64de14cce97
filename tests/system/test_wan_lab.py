#!/usr/bin/env python3
"""The emulated WAN as a whole: sites that are far apart, decisions that a seed repeats, and
nothing left behind.

Covers: sim/wan/wanlab.py
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import SOURCE, Failed, main, scenario, wait_for

sys.path.insert(0, str(SOURCE / "sim/wan"))
import wanlab

ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7))
print("up", flush=True)
while True:
    data, who = s.recvfrom(2000)
    s.sendto(data, who)
"""
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
best = 9.0
for _ in range(50):
    began = time.monotonic()
    s.sendto(b"x" * 64, (sys.argv[1], 7))
    s.recv(2000)
    best = min(best, time.monotonic() - began)
print(best)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(500):
    s.sendto(b"x" * 200, (sys.argv[1], 9))
"""


def must(truth, text):
    if not truth:
        raise Failed(text)


def needs_root():
    reason = wanlab.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)


@scenario
def sites_are_as_far_apart_as_the_scenario_says(_lab):
    """A packet that leaves one site comes to the other after its delay, never before, and is counted."""
    needs_root()
    with wanlab.lab("metro") as wan:
        echo = subprocess.Popen(wan.enter("west", [sys.executable, "-c", ECHO]), stdout=subprocess.PIPE)
        echo.stdout.readline()
        best = float(subprocess.check_output(wan.enter("east", [sys.executable, "-c", ASK, wan.address("west")])))
        echo.terminate()
        echo.wait()
        echo.stdout.close()
    must(best >= 0.002, f"metro is 2 ms there and back, not {best}")
    for path in wan.counters["paths"]:
        must(path["packets"] >= 50 and path["bytes"] >= 50 * 92, f"50 packets each way, not {path}")
        must(path["lost_wire"] == 0, "metro loses nothing")
    must(not left(wan.prefix), "namespaces are gone")


# Prints the congestion control of a connection to the other site; nobody has to listen there.
CONTROLLED = """import socket, sys
with socket.socket() as s:
    s.settimeout(10)
    try:
        s.connect((sys.argv[1], 9))
    except ConnectionRefusedError:
        pass
    print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\\0")[0].decode())
"""


@scenario
def each_site_has_its_congestion_control(_lab):
    """A connection for which a site's programs ask nothing is sent by the scenario's congestion control."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "two.yaml"
        file.write_text("sites: {a: {congestion: reno}, b: {congestion: cubic}}\npaths:\n  - {between: [a, b]}\n")
        with wanlab.lab(file) as wan:
            for site, other, name in (("a", "b", "reno"), ("b", "a", "cubic")):
                said = subprocess.check_output(wan.enter(site, [sys.executable, "-c", CONTROLLED, wan.address(other)]), text=True)
                must(said.strip() == name, f"{site} sends by {name}, not {said}")


@scenario
def a_command_has_its_own_exit_code(_lab):
    """A program beside the sites ends as it ended, and finds them."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "end.json"
        done = subprocess.run([SOURCE / "sim/wan/run", "metro", "--json", out, "--", "sh", "-c", 'test -r "$TB_WAN_LAB" && exit 7'])
        must(done.returncode == 7, f"7, not {done.returncode}")
        must(json.loads(out.read_text())["exit_code"] == 7, "the JSON says so too")
        begun = pathlib.Path(folder) / "begun"
        unwritable = subprocess.run([SOURCE / "sim/wan/run", "--json", f"{folder}/no-such/end.json", "metro", "--", "touch", begun], stderr=subprocess.PIPE, text=True)
        must(unwritable.returncode == 2 and "no-such/end.json" in unwritable.stderr, f"2, and the file: {unwritable.stderr}")
        must(not begun.exists(), "said before the command")
        wrong = pathlib.Path(folder) / "wrong.yaml"
        wrong.write_text("sites: [a, b]\npaths:\n  - {between: [a, b], rate: fast}\n")
        for asked, words in (("no-such", "satellite-bad"), (wrong, "wrong.yaml:3:")):
            refused = subprocess.run([SOURCE / "sim/wan/run", asked, "--", "true"], stderr=subprocess.PIPE, text=True)
            must(refused.returncode == 2 and words in refused.stderr, f"2, and what is wrong: {refused.stderr}")


def decisions(folder, seed):
    file = folder / "lossy.yaml"
    file.write_text("sites: [a, b]\npaths:\n  - {between: [a, b], loss: 20%, duplicate: 5%, corrupt: 5%}\n")
    with wanlab.lab(file, seed) as wan:
        subprocess.run(wan.enter("a", [sys.executable, "-c", SEND, wan.address("b")]), check=True)
        wait_for("500 packets read", lambda: wan.read_counters()["paths"][0]["packets"] >= 500)
    return wan.counters["paths"][0]["decisions"]


@scenario
def a_seed_decides_the_same_again(_lab):
    """The same seed makes the same decisions for the same packets, and another one makes others."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        first, again, other = (decisions(folder, seed) for seed in (5, 5, 6))
    must(first == again, "seed 5 twice")
    must(first != other, "seed 5 and seed 6")


def left(prefix):
    names = subprocess.check_output(["ip", "netns", "list"], text=True)
    return [line for line in names.splitlines() if line.startswith(prefix)]


def alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Parts:
    """The processes of a run of sim/wan/run: the runner, its watchdog, the keeper of the
    command, and what the command left behind."""

    def __init__(self):
        # One child in a site, and one in a session of its own that nobody waits for.
        command = ('cat "$TB_WAN_LAB"; echo; ip netns exec $(jq -r ".sites[0].netns" "$TB_WAN_LAB") sleep 1000 & echo $!; '
                   'setsid sh -c "sleep 1001 & echo \\$!"; wait')
        self.run = subprocess.Popen([SOURCE / "sim/wan/run", "metro", "--", "sh", "-c", command], stdout=subprocess.PIPE, text=True)
        self.about = json.loads(self.run.stdout.readline())
        self.sleepers = [int(self.run.stdout.readline()) for _ in range(2)]
        wait_for("a process in the site", lambda: subprocess.check_output(["ip", "netns", "pids", self.about["sites"][0]["netns"]]))
        self.pids = {"runner": self.run.pid}
        for pid in children(self.run.pid):
            if pid != self.about["emulator_pid"]:
                self.pids["keeper" if children(pid) else "watchdog"] = pid
        must(len(self.pids) == 3, f"a runner, a keeper and a watchdog: {self.pids}")

    def kill(self, who, number):
        for name in who:
            os.kill(self.pids[name], number)

    def must_be_gone(self):
        self.run.stdout.close()
        self.run.wait()
        pids = [*self.sleepers, self.about["emulator_pid"], *self.pids.values()]
        wait_for(f"no process of {pids}", lambda: not any(alive(pid) for pid in pids))
        wait_for("no folder", lambda: not pathlib.Path(self.about["counters"]).parent.exists())
        wait_for("no namespace", lambda: not any(left(site["netns"]) for site in self.about["sites"]))


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


@scenario
def a_killed_lab_leaves_nothing(_lab):
    """No namespace, device or process stays, whether the lab was asked to end or any two of its
    own processes were killed."""
    needs_root()
    for number, who in ((signal.SIGTERM, ["runner"]), (signal.SIGKILL, ["runner"]), (signal.SIGKILL, ["keeper"]),
                        (signal.SIGKILL, ["watchdog", "runner"]), (signal.SIGKILL, ["keeper", "runner"])):
        parts = Parts()
        parts.kill(who, number)
        parts.must_be_gone()


CLONE_NEWNS = 0x20000  # linux/sched.h


def names_of_its_own(folder):
    """From here on this process and its children see no namespace or folder of other labs, nor
    do those see theirs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.makedirs("/run/netns", exist_ok=True)  # where `ip netns` keeps its names
    for mount in (["--make-rprivate", "/"], ["-t", "tmpfs", "names", "/run/netns"]):
        subprocess.run(["mount", *mount], check=True)
    os.environ["TMPDIR"] = tempfile.tempdir = folder


@scenario
def leftover_devices_go_at_the_next_start(_lab):
    """Runner, keeper and watchdog killed at once: the next start ends what they left, and
    touches no lab that is in use; folders of older releases, which do not say whose they are, go
    when nobody has them."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        names_of_its_own(folder)  # another lab's start would sweep too
        sweep_beside_a_living_lab()


def nameless(folder, age_s):
    """A lab's folder that does not say whose it is."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="tombolo-wan.", dir=folder))
    (made / "lab.json").write_text("{}")
    os.utime(made, (time.time() - age_s,) * 2)
    return made


def sweep_beside_a_living_lab():
    living, dead = Parts(), Parts()
    folder = tempfile.gettempdir()
    old, young, had = nameless(folder, 3600), nameless(folder, 5), nameless(folder, 3600)
    holder = subprocess.Popen(["sleep", "1000"], env={**os.environ, "TB_WAN_LAB": f"{had}/lab.json"})
    try:
        dead.kill(["watchdog", "keeper", "runner"], signal.SIGKILL)
        dead.run.wait()
        must(any(alive(pid) for pid in dead.sleepers) and left(dead.about["sites"][0]["netns"]), "something is left to sweep")
        said = subprocess.check_output([SOURCE / "sim/wan/run", "--sweep"], text=True)
        ended = [word.rstrip("*") for word in said.split() if word.endswith("*")]
        must(len(ended) == 1 and dead.about["sites"][0]["netns"].startswith(ended[0]), f"it says what it took down: {said}")
        dead.must_be_gone()
        must((old.exists(), young.exists(), had.exists()) == (False, True, True), f"only a folder that nobody has goes: {said}")
        must(all(alive(pid) for pid in living.sleepers) and len(left(living.about["sites"][0]["netns"])) == 1, "the other lab goes on")
    finally:
        holder.kill()
        holder.wait()
        living.kill(["runner"], signal.SIGTERM)
    living.must_be_gone()


@scenario
def a_lab_outlives_its_watchdog(_lab):
    """Without its watchdog a run goes on, and still takes everything down at its end."""
    needs_root()
    parts = Parts()
    parts.kill(["watchdog"], signal.SIGKILL)
    os.kill(parts.sleepers[0], signal.SIGKILL)
    must(parts.run.wait(timeout=60) == 0, "the command ended well")
    with contextlib.suppress(ProcessLookupError):
        os.kill(parts.sleepers[1], signal.SIGKILL)  # a run that ends by itself leaves the command's daemons alone
    parts.must_be_gone()


STALL = r"""
import json, os, signal, socket, subprocess, sys, time
lab = json.load(open(os.environ["TB_WAN_LAB"]))
send = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range(300): s.sendto(b'x', ('10.201.0.2', 9))"
subprocess.run(["ip", "netns", "exec", lab["sites"][0]["netns"], sys.executable, "-c", send], check=True)
end = time.monotonic() + 100
while True:
    os.kill(lab["emulator_pid"], signal.SIGUSR1)
    if os.path.exists(lab["counters"]) and json.load(open(lab["counters"]))["paths"][0]["packets"] >= 300:
        break
    assert time.monotonic() < end
    time.sleep(0.01)
os.kill(lab["emulator_pid"], signal.SIGSTOP)
time.sleep(2.2)  # the fault: the emulator does nothing while 300 packets are due
os.kill(lab["emulator_pid"], signal.SIGCONT)
while json.load(open(lab["counters"]))["sites"][0]["delivered"] < 300:
    os.kill(lab["emulator_pid"], signal.SIGUSR1)
    assert time.monotonic() < end
    time.sleep(0.01)
"""


@scenario
def a_run_that_fell_behind_is_void(_lab):
    """Packets that were late are said: on stderr, in the JSON, and by the exit code of a command
    that ended well. SIGUSR1 writes the counters."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        file, out = pathlib.Path(folder) / "slow.yaml", pathlib.Path(folder) / "end.json"
        file.write_text("sites: [a, b]\npaths:\n  - {between: [a, b], delay: 2s}\n")
        done = subprocess.run([SOURCE / "sim/wan/run", "--json", out, file, "--", sys.executable, "-c", STALL],
                              stderr=subprocess.PIPE, text=True)
        must(done.returncode == wanlab.VOID, f"{wanlab.VOID}, not {done.returncode}: {done.stderr}")
        must("VOID: packets were delivered late" in done.stderr, f"said: {done.stderr}")
        end = json.loads(out.read_text())
        must(end["void"] and end["counters"]["void"] and end["exit_code"] == 0, f"in the JSON: {end}")


def two_sites(folder, words):
    file = pathlib.Path(folder) / "two.yaml"
    file.write_text(f"sites: [a, b]\npaths:\n  - {{from: a, to: b, delay: 1ms{words}}}\n")
    return wanlab.lab(file)


def send_500(wan, words=SEND):
    subprocess.run(wan.enter("a", [sys.executable, "-c", words, wan.address("b")]), check=True)


def delivered(wan, count):
    wait_for(f"{count} packets delivered", lambda: wan.read_counters()["sites"][0]["delivered"] >= count)


@scenario
def a_packet_that_was_read_late_is_late(_lab):
    """Packets that lie in a device while the emulator does nothing count as late, though each is
    written at the moment it was told."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder, two_sites(folder, "") as wan:
        wan.process.send_signal(signal.SIGSTOP)
        send_500(wan)
        time.sleep(2.2)  # the fault: a nap is 1 s at most
        wan.process.send_signal(signal.SIGCONT)
        delivered(wan, 500)
    site = wan.counters["sites"][0]
    must(wan.void and site["late_us_p50"] >= 1 << 20, f"half of them over a second late: {site}")


@scenario
def counters_that_are_not_said_are_not_made_up(_lab):
    """An emulator that does not answer, or is gone, is an error: what it said before is not what
    is."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder, two_sites(folder, "") as wan:
        wan.read_counters()
        wan.process.send_signal(signal.SIGSTOP)
        must_not_read(wan, 0.5, "within 0.5 s")
        wan.process.send_signal(signal.SIGCONT)
        delivered(wan, 0)
        wan.process.kill()
        must_not_read(wan, 60, "ended with -9")


def must_not_read(wan, timeout_s, words):
    try:
        said = wan.read_counters(timeout_s)
    except wanlab.LabError as error:
        must(words in str(error), f"it says why: {error}")
    else:
        raise Failed(f"older counters: {said}")


@scenario
def a_device_that_takes_no_packets_voids_the_run(_lab):
    """A packet that the emulator cannot write is lost outside of the scenario; but for packets that the scenario flipped, which may be no
    packets any more."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder, two_sites(folder, "") as wan:
        subprocess.run(["ip", "-n", wan.netns("b"), "link", "set", wanlab.DEVICE, "down"], check=True)
        send_500(wan)
        delivered(wan, 500)
    must(wan.void and wan.counters["sites"][0]["write_failed"] >= 500, f"none was taken: {wan.counters['sites'][0]}")
    with tempfile.TemporaryDirectory() as folder, two_sites(folder, ", corrupt: 100%") as wan:
        for _ in range(4):
            send_500(wan, SEND.replace("* 200", "* 0"))
        delivered(wan, 2000)
    site = wan.counters["sites"][0]
    must(site["flips_refused"] > 0 and site["write_failed"] == 0, f"of the flipped ones some are no IP: {site}")


# One fault each on the way from `hub`; the way back is clean but for what is said.
FAULTS = """
sites: [hub, loss, burst, twice, swap, flip, long, cut]
paths:
  - {from: hub, to: loss, delay: 1ms, loss: 20%}
  - {from: hub, to: burst, delay: 1ms, burst_enter: 2%, burst_leave: 20%}
  - {from: hub, to: twice, delay: 1ms, duplicate: 20%}
  - {from: hub, to: swap, delay: 300ms, reorder: 20%}
  - {from: hub, to: flip, delay: 1ms, corrupt: 20%}
  - {from: hub, to: long, delay: 1ms, mtu: 600}
  - {from: hub, to: cut, delay: 1ms, cut: yes}
  - {from: cut, to: hub, delay: 1ms}
  - {from: loss, to: hub, delay: 1ms}
schedule:
  - {at: 0s, every: 100ms, from: loss, to: hub, cut: yes}
  - {at: 50ms, every: 100ms, from: loss, to: hub, cut: no}
"""
# Receives until two seconds of silence; prints how many came, how many of them were new, how many
# overtook and how many the checksum refused.
COUNT = 500
SINK = """
import json, re, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE: all of it fits, however long nobody reads
s.bind(("0.0.0.0", 9))
print("up", flush=True)
s.settimeout(30)
seen = []
try:
    while True:
        seen.append(struct.unpack("!I", s.recv(2000)[:4])[0])
        s.settimeout(2)
except TimeoutError:
    pass
overtook, least = 0, {COUNT}  # those behind which one of a smaller number came
for number in reversed(seen):
    overtook, least = overtook + (number > least), min(number, least)
names, values = [line.split() for line in open("/proc/net/snmp") if line.startswith("Udp:")]
refused = int(dict(zip(names, values))["InCsumErrors"])
print(json.dumps([len(seen), len(set(seen)), overtook, refused]))
""".replace("{COUNT}", str(COUNT))
FLOOD = f"""
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range({COUNT}):
    for to in sys.argv[1:]:
        s.sendto(struct.pack("!I", i) + b"x" * 796, (to, 9))
"""


def between(low, value, high, what):
    must(low <= value <= high, f"{what}: {value} is not from {low} to {high}")


@scenario
def each_fault_does_what_it_says(_lab):
    """Eight sites, a fault on each way: it is in the counters of its own path alone, and the
    site at its end sees it."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "faults.yaml"
        file.write_text(FAULTS)
        with wanlab.lab(file, seed=3) as wan:
            names = ["loss", "burst", "twice", "swap", "flip"]
            sinks = {name: subprocess.Popen(wan.enter(name, [sys.executable, "-c", SINK]), stdout=subprocess.PIPE, text=True)
                     for name in names}
            for sink in sinks.values():
                sink.stdout.readline()
            to = [wan.address(name) for name in (*names, "long", "cut")]
            subprocess.run(wan.enter("hub", [sys.executable, "-c", FLOOD, *to]), check=True)
            one = wan.enter("cut", [sys.executable, "-c", FLOOD, wan.address("hub")])
            subprocess.run(one, check=True)
            got = {name: json.loads(sink.communicate()[0]) for name, sink in sinks.items()}
            ways = paths_of(wan.read_counters())

            def both_seen():
                subprocess.run(wan.enter("loss", [sys.executable, "-c", FLOOD, wan.address("hub")]), check=True)
                flapped = paths_of(wan.read_counters())["loss", "hub"]
                return 0 < flapped["lost_cut"] < flapped["packets"]
            wait_for("a schedule that cuts and mends", both_seen)
    for (origin, site), way in ways.items():
        if origin == "hub":
            must(way["packets"] >= COUNT, f"{COUNT} packets to {site}: {way}")
    counts = {site: way for (origin, site), way in ways.items() if origin == "hub"}
    between(60, counts["loss"]["lost_wire"], 140, "a fifth is lost")
    between(2, counts["burst"]["bursts"], 25, "bursts")
    must(counts["burst"]["lost_wire"] >= 2 * counts["burst"]["bursts"], f"a burst loses several: {counts['burst']}")
    between(60, counts["twice"]["duplicated"], 140, "a fifth comes twice")
    between(60, counts["swap"]["reordered"], 140, "a fifth overtakes")
    between(60, counts["flip"]["corrupted"], 140, "a fifth is flipped")
    between(COUNT, counts["long"]["lost_mtu"], COUNT, "all are too long")
    between(COUNT, counts["cut"]["lost_cut"], counts["cut"]["packets"], "cut one way")
    must(ways["cut", "hub"]["lost_cut"] == 0 and ways["cut", "hub"]["packets"] >= COUNT, f"and open the other: {ways['cut', 'hub']}")
    own = {"loss": "lost_wire", "burst": "lost_wire", "twice": "duplicated", "swap": "reordered", "flip": "corrupted", "long": "lost_mtu",
           "cut": "lost_cut"}
    for site, way in counts.items():
        others = {key: way[key] for key in set(own.values()) - {own[site]} if way[key] != 0}
        must(not others, f"{site} has {others} as well")
    for name in ("loss", "burst"):
        must(got[name][1] == COUNT - counts[name]["lost_wire"], f"{name}: what was not lost arrives: {got[name]}")
    must(got["twice"][:2] == [COUNT + counts["twice"]["duplicated"], COUNT], f"twice: {got['twice']}")
    must(got["swap"][1] == COUNT and got["swap"][2] >= 20, f"swap: all arrive, some before others: {got['swap']}")
    must(got["flip"][0] + got["flip"][3] <= COUNT and got["flip"][3] >= 40, f"flip: checksums see it: {got['flip']}")


def paths_of(counters):
    return {(path["from"], path["to"]): path for path in counters["paths"]}


def netem_script(scenario):
    """The output of `--netem --print`, a shell script, and its tc commands without their namespaces."""
    script = subprocess.run([SOURCE / "sim/wan/run", "--netem", "--print", scenario], capture_output=True, text=True, check=True).stdout
    must(subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0, f"{scenario}: a shell script")
    return script, [(words[0], *words[3:]) for words in (shlex.split(line) for line in script.splitlines() if line.startswith("tc "))]


def must_be_understood(wanted):
    """Of a device that is not there: what tc cannot parse it says before it looks for the device."""
    if shutil.which("tc") is None:
        print("skipped: tc is not installed")
        sys.exit(77)
    for words in wanted:
        done = subprocess.run(["unshare", "--net", *("absent0" if word == wanlab.DEVICE else word for word in words)], capture_output=True, text=True)
        must("Cannot find device" in done.stderr, f"{shlex.join(words)}: {done.stderr}")


@scenario
def tc_takes_the_commands_for_netem(_lab):
    """Each shipped scenario is read, its `--netem` script is a shell script, and tc understands
    each qdisc, class and filter in it."""
    needs_root()
    must(len(wanlab.shipped()) == 8, f"eight scenarios: {wanlab.shipped()}")
    wanted = set()
    for name in wanlab.shipped():
        wanlab.plan(name)
        wanted.update(netem_script(name)[1])
    must(any("gemodel" in words for words in wanted) and any("change" in words for words in wanted), "bursts and schedules are in them")
    must_be_understood(wanted)


# Ways from `hub` on which jitter is to keep order or not, with a rate or without one, of their own
# or shared; on the last one long packets vanish.
ORDERS = """
sites: [hub, kept, free, paced, turned, first, second, long]
paths:
  - {from: hub, to: kept, jitter: 5ms, keep_order: yes}
  - {from: hub, to: free, jitter: 5ms}
  - {from: hub, to: paced, jitter: 5ms, rate: 10Mbit}
  - {from: hub, to: turned, jitter: 5ms, rate: 10Mbit, keep_order: yes}
  - {from: hub, to: first, jitter: 5ms, rate: 10Mbit, shared: one}
  - {from: hub, to: second, jitter: 5ms, rate: 10Mbit, shared: one, keep_order: yes}
  - {from: hub, to: long, jitter: 5ms, rate: 10Mbit, keep_order: yes, mtu: 600}
schedule:
  - {at: 1s, from: hub, to: kept, keep_order: no}
  - {at: 2s, from: hub, to: turned, keep_order: no}
"""


@scenario
def netem_keeps_order_or_it_says_so(_lab):
    """netem keeps order where it has a rate, and nowhere else. `--netem` gives it one that
    limits nothing where order is to be kept; what it does not do as the scenario says it tells,
    and nothing else. vm.netem_keeps_order_where_it_has_a_rate is of a kernel's own."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "orders.yaml"
        file.write_text(ORDERS)
        script, commands = netem_script(file)
    made = [line for line in script.splitlines() if line.startswith("ip netns add ")]
    must(len(set(made)) == len(made) == 9, f"namespaces of eight sites, one of them named hub, and what is between them: {made}")
    sites = ORDERS.split("[")[1].split("]")[0].split(", ")

    def rates(verb):
        """[(site, the rate that its way has, None for none)]: class 1:N is the way to site N."""
        leaves = [words for words in commands if words[2] == verb and "netem" in words and "parent" in words]
        return [(sites[int(words[words.index("parent") + 1][2:], 16) - 1], words[words.index("rate") + 1] if "rate" in words else None) for words in leaves]
    own = "10000000bit"
    wanted = {"kept": wanlab.NO_LIMIT, "free": None, "paced": own, "turned": own, "first": None, "second": wanlab.NO_LIMIT, "long": own}
    must(dict(rates("add")) == wanted, f"rates: {rates('add')}")
    must(rates("change") == [("kept", "0bit"), ("turned", own)], f"and when they change: {rates('change')}")
    told = [line.removeprefix("# not as the scenario says: ") for line in script.splitlines() if "not as the scenario says" in line]
    jitter = "jitter overtakes nothing: netem keeps order where it has a rate"
    must(told == [f"from hub to paced {jitter}", f"from hub to turned {jitter}", "from hub to long no packet is dropped for its length"], f"told: {told}")
    must_be_understood(set(commands))


if __name__ == "__main__":
    sys.exit(main())
