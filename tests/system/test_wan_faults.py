#!/usr/bin/env python3
"""Faults between sites that are far apart (P1 P3 P5 P6): what lies between two gateways on the emulated WAN fails in every way it can.

After each of them every byte is right, every packet between the sites was of a TLS connection, and what crossed twice is bounded: at most a parcel a
stream for each cut, and after a kill what was under way besides. Times are counted from the fault's begin. A run in which the emulator fell behind says
nothing about the gateways and is made again, and so is one over its bound, a few times: this machine may be anybody's."""

import contextlib
import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import time

from capture import Capture
from harness import MAKE_WEIGHTS, PATIENCE_S, SOURCE, Cores, Dns, Failed, Rollout, Skipped, Trainer, main, scenario, wait_for

sys.path.insert(0, str(SOURCE / "sim/wan"))
import wanlab

RTT_S = 0.08
MBIT = 120  # four parcels of a MiB, one on each stream, take a quarter of a second
PATH = {"rate": f"{MBIT}Mbit", "delay": "40ms", "queue": "2MiB"}
BDP_BYTES = int(MBIT * 1e6 / 8 * RTT_S)
STREAMS = 4
PARCEL_BYTES = 1 << 20
UNSENT_BYTES = (1 << 20) + (256 << 10)  # of a stream whose rate is not known yet, and what the kernel rounds it up by
# The product's own defaults where the other tests are less patient; bytes are counted, so nothing is encoded.
LINK = {"streams": STREAMS, "heartbeat_ms": 1000, "down_ms": 3000, "retry_max_ms": 5000, "codec": "raw"}
TRIES = 3


def need(truth, text):
    if not truth:
        raise Failed(text)


class Pair:
    """East, home of `policy`, a trainer there, and west, which follows; `wan` lies between them."""

    def __init__(self, lab, names=("east", "west"), through=None, paths=None, streams=STREAMS, arena_mib=256):
        self.lab = lab
        self.wan = None
        if through is None:
            self.begin_wan(names)
        net = through or self.wan
        self.enter, self.address = net.enter, net.address
        self.watch(net, names)
        self.east, self.west, _ = lab.east_west(through_link=False, arena_mib=arena_mib, keep=3)
        self.streams, self.bdp_bytes = streams, BDP_BYTES
        for site in (self.east, self.west):
            self.settle(site)
        self.west.peers["east"] = f"{self.east.address}:{self.east.port}"
        self.paths = paths or lab.weights(TRIES)
        self.trainer = self.reader = None
        self.number = 0
        self.lives_bytes = 0  # that west received in lives before this one

    def begin_wan(self, names):
        reason = wanlab.why_not()
        if reason:
            raise Skipped(reason)
        file = self.lab.dir / "wan.yaml"
        words = ", ".join(f"{key}: {value}" for key, value in PATH.items())
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1:]]
        file.write_text(f"sites: [{', '.join(names)}]\npaths:\n" + "".join(f"  - {{between: [{a}, {b}], {words}}}\n" for a, b in pairs))
        self.wan = self.lab.after.enter_context(wanlab.lab(file))

    def watch(self, net, names):
        """P8: every packet on the devices between the sites belongs to a TLS connection."""
        seen = Capture(net, *names)

        def judge(kind, *_):
            need(kind is not None or seen.count > 0, "no packet crossed")
            need(kind is not None or not seen.complaints(), f"P8: {seen.complaints()[:1]}")
        self.lab.after.push(judge)
        self.lab.after.enter_context(seen)

    def settle(self, site):
        site.extra = {"link": dict(LINK, streams=self.streams), "session": {"lease_ms": 10000}}
        site.live_in(self.enter(site.name, []), self.address(site.name))

    def up(self):
        for site in self.lab.sites:
            site.start()
        for site in self.lab.sites:
            for peer in site.peers:
                site.wait_link(peer)
        self.trainer = Trainer(self.lab, self.east, self.paths[0])
        self.reader = Rollout(self.lab, self.west, "reader", self.paths[0])
        return self

    def begin(self, share=0.15):
        """The next version is on its way: so much of it is in west."""
        self.number += 1
        self.sessions, self.lost, self.hedged = self.seen()
        uid = self.trainer.publish(self.number, self.paths[(self.number - 1) % len(self.paths)])
        self.east.wait_holds(uid)
        v = self.west.wait_held_some(uid, share)
        need(v["held_bytes"] < v["bytes"], "it is whole already: the path is too fast for this test")
        for link in self.east.control("streams")["links"]:
            for stream in link["streams"]:
                need(stream["queued_bytes"] <= UNSENT_BYTES, f"{stream['queued_bytes']} bytes wait unsent in a socket")
        return uid

    def turn(self, **settings):
        self.wan.turn("east", "west", **settings)

    def held(self, uid):
        return self.west.version(uid)["held_bytes"]

    def seen(self):
        link, other = self.west.link("east"), self.east.link("west") or {}
        # A stream that breaks is counted by whichever end saw it first.
        return link["sessions"], link["streams_lost"] + other.get("streams_lost", 0), other.get("hedged_bytes", 0)

    def landed_after_s(self, uid, was, began):
        """Seconds since `began` when more than that was held."""
        end = time.monotonic() + PATIENCE_S
        while self.held(uid) <= was:
            need(time.monotonic() < end, "nothing lands any more")
            time.sleep(0.002)
        return time.monotonic() - began

    def kill(self, site, uid):
        if site is self.west:
            self.lives_bytes += (site.version(uid) or {}).get("wire_bytes", 0)
        site.restart()

    def well(self, uid, cuts=0, kills=0):
        """It becomes whole; its bytes are right; of what came, little was in vain: a parcel for each stream to west that was cut, and what was
        on its way at a kill."""
        self.west.wait_holds(uid)
        self.exact(uid)
        v = self.west.version(uid)
        sessions, lost, hedged = self.seen()
        # A frame's header for each chunk is below a thousandth.
        waste = v["wire_bytes"] + self.lives_bytes - v["bytes"] * 1.001 - max(0, hedged - self.hedged)
        bound = (cuts + kills) * self.streams * PARCEL_BYTES + kills * self.bdp_bytes
        print(f"  {sessions - self.sessions} sessions, {lost - self.lost} streams lost; in vain: {waste / 1e6:.2f} MB of at most {bound / 1e6:.1f}")
        need(waste <= bound, f"{waste:.0f} bytes came in vain, of at most {bound}")
        self.lives_bytes = 0

    def exact(self, uid):
        self.reader.stage(uid)
        self.reader.activate(uid)
        self.reader.check(self.paths[(self.number - 1) % len(self.paths)])

    def void(self):
        """Why the emulator's word does not count, since it was asked last; empty: it does."""
        since = self.wan.read_counters()["since"] if self.wan else {"void": False}
        return since["why"] if since["void"] else ""


def within(pair, fault_s, bound_s, begin, end):
    """P6: parcels land again in time, in one of a few tries. One that is late while others have the cores says nothing about the gateways, nor
    does one in which the emulator was."""
    said, counted = [], 0
    for _ in range(TRIES):
        uid = pair.begin()
        pair.void()
        began, cores = time.monotonic(), Cores()
        begin()
        time.sleep(max(0, fault_s - (time.monotonic() - began)))  # the fault lasts so long
        was = pair.held(uid)
        end()
        if was == pair.west.version(uid)["bytes"]:  # a busy machine was late with the fault
            pair.well(uid, cuts=1)
            said.append("nothing (void: it was whole before)")
            continue
        took = pair.landed_after_s(uid, was, began)
        taken, why = cores.taken(), pair.void()
        if took > bound_s:
            why = why or taken
        pair.well(uid, cuts=1)
        counted += not why
        said.append(f"{took:.2f} s" + (f" (void: {why})" if why else ""))
        print(f"  parcels landed after {said[-1]}, of at most {bound_s:.2f}")
        if took <= bound_s and not why:
            return
    need(counted == 0, f"parcels landed again after {', '.join(said)}; at most {bound_s:.2f} s")
    raise Skipped(f"none of {TRIES} tries counts: {', '.join(said)}")


def black_hole(lab, seconds):
    pair = Pair(lab).up()
    within(pair, seconds, seconds + 1 + 3 * RTT_S, lambda: pair.turn(cut="yes"), lambda: pair.turn(cut="no"))


@scenario
def a_black_hole_of_3_s(lab):
    """P5 P6: every packet vanishes for 3 s; parcels land again within a second and 3 RTT."""
    black_hole(lab, 3)


@scenario
def a_black_hole_of_5_s(lab):
    """P5 P6: likewise, when the session is down already."""
    black_hole(lab, 5)


@scenario
def a_black_hole_of_60_s(lab):
    """P5 P6: likewise, when TCP has long asked only now and then."""
    black_hole(lab, 60)


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
        for i, (site, name) in enumerate(self.names.items()):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
            if i == 1:
                self.ip("link", "add", "wan0", "netns", self.names["east"], "type", "veth", "peer", "name", "wan0", "netns", name)
        for site, name in self.names.items():
            self.ip("-n", name, "addr", "add", self.address(site) + "/24", "dev", "wan0")
            self.ip("-n", name, "link", "set", "wan0", "up")
        return self

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


@scenario
def a_device_is_down_for_3_s(lab):
    """P5 P6: a veth is down for 3 s; parcels land again 3.5 s after it went."""
    veth = lab.after.enter_context(Veth())
    pair = Pair(lab, through=veth)
    pair.east.peer_keys["west"] = {"rate": f"{MBIT}Mbit"}
    pair.up()
    within(pair, 3, 3.5, lambda: veth.link("down"), lambda: veth.link("up"))


@scenario
def one_way_is_cut(lab):
    """P5 P6: for 4 s nothing arrives from east, then nothing from west; the version is whole in the end, and parcels land soon after each."""
    pair = Pair(lab).up()
    for origin, to in (("east", "west"), ("west", "east")):
        within(pair, 4, 4 + 1 + 3 * RTT_S, lambda o=origin, t=to: pair.wan.turn(o, t, both=False, cut="yes"),
               lambda o=origin, t=to: pair.wan.turn(o, t, both=False, cut="no"))


@scenario
def a_path_flaps(lab):
    """P5 P6: gone for half of every second, the path still carries the version."""
    pair = Pair(lab).up()
    uid, cuts = pair.begin(), 0
    for _ in range(60):
        for cut in ("yes", "no"):
            pair.turn(cut=cut)
            time.sleep(0.5)  # the fault: 1 Hz
            cuts += cut == "yes"
        if pair.west.holds(uid):
            break
    need(pair.west.holds(uid), "60 s of flapping were not enough")
    pair.well(uid, cuts=cuts)


def meanwhile(lab, seconds, fault, mended, cuts=0):
    """The path is changed in mid-version for so long, and then as it was. `cuts`: how often streams may have to be given up for it."""
    pair = Pair(lab).up()
    uid = pair.begin()
    pair.turn(**fault)
    time.sleep(seconds)  # the fault lasts so long
    pair.turn(**mended)
    pair.well(uid, cuts)


@scenario
def long_packets_vanish(lab):
    """P5 P6: an MTU hole for 8 s: heartbeats come through and full segments do not. The streams are lost, the version is not."""
    meanwhile(lab, 8, {"mtu": 1200}, {"mtu": 0}, cuts=1)


@scenario
def three_percent_are_lost(lab):
    """P5 P6: a version crosses a path that loses 3 % both ways, and nothing is sent again but by TCP."""
    meanwhile(lab, 20, {"loss": "3%"}, {"loss": "0%"})


@scenario
def packets_overtake_each_other(lab):
    """P1 P5 P6: a fifth of the packets overtakes, one in a hundred comes twice, and one in a thousand has a bit flipped."""
    meanwhile(lab, 5, {"reorder": "20%", "duplicate": "1%", "corrupt": "0.1%"}, {"reorder": "0%", "duplicate": "0%", "corrupt": "0%"})


@scenario
def a_rate_falls_to_one_percent(lab):
    """P5 P6: the path is a hundred times slower for 10 s; queues hold seconds of bytes. Then it is as before."""
    meanwhile(lab, 10, {"rate": f"{MBIT * 10}kbit"}, {"rate": f"{MBIT}Mbit"}, cuts=1)


@scenario
def a_peer_is_stopped_for_30_s(lab):
    """P5 P6: west's gateway does nothing for 30 s, then east's."""
    pair = Pair(lab).up()
    for stopped in (pair.west, pair.east):
        uid = pair.begin()
        stopped.daemon.stop()
        time.sleep(30)  # the fault lasts so long
        stopped.daemon.signal(signal.SIGCONT)
        pair.well(uid, cuts=1)


@scenario
def gateways_are_killed_at_random(lab):
    """P3 P5 P6: three sites that give each other what they hold; ten times any of their gateways is killed in mid-version."""
    pair = Pair(lab, names=("east", "west", "north"))
    north = lab.site("north", arena_mib=256)
    pair.settle(north)
    north.models["policy"] = dict(home="east", keep=3)
    north.subscribe.append(("policy", ["east", "west"]))
    north.peers.update(east=f"{pair.east.address}:{pair.east.port}", west=f"{pair.west.address}:{pair.west.port}")
    pair.west.subscribe[:] = [("policy", ["east", "north"])]
    pair.west.listen = True
    pair.east.peers["north"] = pair.west.peers["north"] = None
    pair.up()
    draws = random.Random(4)  # of sites and moments: the same each time
    for a, b in (("east", "west"), ("east", "north"), ("west", "north")):
        pair.wan.turn(a, b, rate="6Mbit")
    uid = pair.begin(0.02)
    kills = 0
    for _ in range(10):
        site = draws.choice([pair.east, pair.west, north])
        pair.kill(site, uid)
        kills += 2 if site is pair.west else 1  # to west comes from two
        time.sleep(draws.uniform(0.2, 1.5))  # the moment of the next one
    for a, b in (("east", "west"), ("east", "north"), ("west", "north")):
        pair.wan.turn(a, b, rate=f"{MBIT}Mbit")
    pair.well(uid, kills=kills)
    north.wait_holds(uid)


@scenario
def a_kill_on_a_plain_veth(lab):
    """P3 P5: 256 MiB on eight streams, and SIGKILL in the middle of it, of west's gateway and then of east's: at most 5 % come twice."""
    large = lab.dir / "large"
    subprocess.run([MAKE_WEIGHTS, "--out", large, "--bytes", "256M", "--versions", "2", "--seed", "7"], check=True, stdout=subprocess.DEVNULL)
    veth = lab.after.enter_context(Veth())
    pair = Pair(lab, through=veth, paths=sorted(large.glob("*.safetensors")), streams=8, arena_mib=700)
    pair.east.peer_keys["west"] = {"rate": "400Mbit"}
    pair.bdp_bytes = (256 << 20) // 20 - 8 * PARCEL_BYTES
    pair.up()
    for site in (pair.west, pair.east):
        uid = pair.begin(0.3)
        pair.kill(site, uid)
        pair.well(uid, kills=1)


@scenario
def a_peer_of_the_release_before(lab):
    """P9 P5 P6: west speaks no more than the protocol before this one, and every packet vanishes for 3 s in mid-version."""
    pair = Pair(lab)
    pair.west.arguments = ["--protocol-max", "1"]
    pair.up()
    need(pair.west.link("east")["protocol"] == 1, "they speak another version")
    within(pair, 3, 3 + 1 + 3 * RTT_S, lambda: pair.turn(cut="yes"), lambda: pair.turn(cut="no"))


@contextlib.contextmanager
def inside(netns):
    """What this thread opens meanwhile is in that network."""
    setns = ctypes.CDLL(None, use_errno=True).setns
    with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{netns}", "rb") as there:
        need(setns(there.fileno(), 0) == 0, f"cannot enter {netns}")
        try:
            yield
        finally:
            need(setns(home.fileno(), 0) == 0, "cannot come back")


@scenario
def a_peer_moves_to_another_address(lab):
    """P3 P5 P6: in mid-version east's gateway goes on at another place with what it has, and its name says where: west follows, with what it holds."""
    pair = Pair(lab, names=("east", "west", "moved"))
    with inside(pair.wan.netns("west")):
        dns = Dns({"gw.east.test": [pair.east.address]}, ttl_s=1)
    with contextlib.closing(dns):
        pair.west.extra["dns"] = {"servers": f"127.0.0.1:{dns.port}"}
        pair.west.peers["east"] = f"gw.east.test:{pair.east.port}"
        pair.up()
        uid = pair.begin()
        pair.east.kill()
        pair.east.live_in(pair.enter("moved", []), pair.address("moved"))
        dns.names["gw.east.test"] = [pair.east.address]
        pair.east.start()
        pair.well(uid, kills=1)


@scenario
def certificates_are_renewed(lab):
    """P9 P5: each gateway gets a fresh certificate in mid-version and reads it while it runs; nothing that is held is lost or sent again."""
    pair = Pair(lab).up()
    uid = pair.begin()
    for site in (pair.east, pair.west):
        (site.trust / "gw.crt").unlink()
        (site.trust / "gw.key").unlink()
        lab.tombolo("pki", "issue", "--dir", site.trust, "--out", "gw", f"tombolo://{site.name}/gw")
        site.daemon.signal(signal.SIGHUP)
        wait_for(f"{site.name} has read it", lambda s=site: s.counters()["certificates_loaded"] > 0)
    pair.west.wait_link("east")
    pair.well(uid, cuts=2)  # a session is renewed for each of them, and its streams with it
    for site in (pair.east, pair.west):
        need(not site.daemon.logged("link.down"), f"the link was down at {site.name}")


if __name__ == "__main__":
    sys.exit(main())
