"""Three sites, two models, and one fault after the other, in an order that a seed chooses. After each
fault the sites are left alone until all is quiet; then every held byte is read and compared, nobody
may be behind, and while a fault lasts `tombolo lag` has to say why.

tests/chaos runs it for hours; test_chaos.py runs a minute of it."""

import os
import random
import subprocess
import time

from harness import PATIENCE_S, Failed, SmallDisk, WallClock, expect, safetensors, version_folder, wait_for
from lagging import WHY

HOMES = {"policy": "east", "beta": "west"}
BYTES = 1 << 20      # of a version
CHANGED = 1 << 14    # of them, from one version to the next
CURRENT = {"up-to-date", "no-subscriber"}
DOWN = {"link-down", "refused-by-peer", "tls-failed"}
HOUR_S = 3600


def row(site, model, of):
    (one,) = (r for r in site.control("lag", model=model)["lag"] if r["site"] == of)
    return one


def says(site, reasons, of, model):
    """P10: that it is behind, or not known, for one of these reasons."""
    seen = []

    def said():
        r = row(site, model, of)
        if not seen or seen[-1] != r["reason"]:
            seen.append(r["reason"])
        return r["reason"] in reasons and r
    try:
        r = wait_for(f"{site.name} says {sorted(reasons)} of {of} and {model}", said)
    except Failed as failed:
        raise Failed(f"{failed}; it said {seen}") from None
    expect("why", r["why"], WHY[r["reason"]])


class Publisher:
    """Of one model, by `tombolo publish`, which may fail while a fault lasts. The same number goes
    out again then with the same bytes: what was said to be held is held, and what was not may be."""

    def __init__(self, world, model):
        self.world, self.model = world, model
        self.home = world.sites[HOMES[model]]
        self.data = bytearray(world.random.randbytes(BYTES))
        self.number = 0
        self.held = {}       # number -> file: acknowledged
        self.under_way = None
        self.next()

    def next(self):
        self.number += 1
        at = self.world.random.randrange(BYTES - CHANGED)
        self.data[at:at + CHANGED] = self.world.random.randbytes(CHANGED)
        self.file = self.world.lab.dir / f"{self.model}-{self.number}.safetensors"
        safetensors(self.file, {"w": ("U8", [BYTES], bytes(self.data))})

    def begin(self):
        """Nobody waits for it: a fault may come in the middle."""
        self.finish()
        self.log = self.world.lab.dir / f"publish-{self.model}.log"
        argv = [self.home.tombolo, "publish", self.model, self.file, "--version", self.number, "--timeout", f"{int(PATIENCE_S)}s"]
        env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{self.home.session_socket}")
        with open(self.log, "ab") as log:
            self.under_way = subprocess.Popen([str(a) for a in argv], env=env, stdout=log, stderr=log)

    def finish(self):
        """Whether it went well. Of a version that was given up the number is not used again."""
        if self.under_way is None:
            return True
        code = self.under_way.wait(2 * PATIENCE_S)
        self.under_way = None
        if code == 0:
            self.held[self.number] = self.file
        if code in (0, 6):
            self.next()
        return code == 0

    def publish(self):
        def went_well():
            self.begin()
            return self.finish()
        wait_for(f"{self.model} {self.number} is published; see {self.model}'s log", went_well)

    def head(self):
        return max(self.held)


class Chaos:
    """`say` gets a line for each turn."""

    def __init__(self, lab, seed, say=print):
        self.lab, self.seed, self.say = lab, seed, say
        self.random = random.Random(seed)
        self.turns = 0
        self.sites = {name: lab.site(name, arena_mib=32) for name in ("east", "west", "north")}
        self.connect()
        self.disks, self.clocks = {}, {}
        for site in self.sites.values():
            self.disks[site] = SmallDisk(lab, site, size="32m")
            self.clocks[site] = WallClock(site, dates=True)
            self.clocks[site].forward(-self.clocks[site].shift_s)
        for site in self.sites.values():
            site.start()
        self.links_up()
        self.publishers = [Publisher(self, model) for model in HOMES]

    def connect(self):
        """Each pair has a link of its own, which can be cut."""
        east, west, north = self.sites.values()
        self.links = {}
        for dials, to in ((west, east), (north, east), (north, west)):
            link = self.lab.link(to)
            self.links[dials.name, to.name] = link
            dials.peers[to.name] = f"127.0.0.1:{link.port}"
            to.peers[dials.name] = None
        north.listen = False
        user = sorted({f"unix:{os.getuid()}", "unix:0"})
        for site in self.sites.values():
            for model, home in HOMES.items():
                site.models[model] = dict(home=home, keep=2, publish=user, read=[*user, *(f"tombolo://{s}/*" for s in self.sites)])
                others = [s for s in self.sites if s not in (site.name, home)]
                if site.name != home:
                    site.subscribe.append((model, [home, *(o for o in others if o in site.peers)]))

    # ---- faults: each lasts as long as its `with` ----

    def of(self, site):
        return [link for pair, link in self.links.items() if site.name in pair]

    def others(self, site):
        return [s for s in self.sites.values() if s is not site]

    def is_away(self, site):
        """P10: each home says it of the site, and all others say it of the models at home there."""
        for model, home in HOMES.items():
            if home != site.name:
                says(self.sites[home], DOWN | {"clock-skew"}, site.name, model)
            else:
                for other in self.others(site):
                    says(other, DOWN | {"clock-skew"}, other.name, model)

    def publish_meanwhile(self):
        for p in self.publishers:
            p.begin()

    def fault_kill(self):
        site = self.random.choice(list(self.sites.values()))
        self.publish_meanwhile()
        site.kill()
        self.is_away(site)
        site.start()
        return site.name

    def fault_drain(self):
        site = self.random.choice(list(self.sites.values()))
        self.publish_meanwhile()
        expect(f"exit code of {site.name}", site.daemon.terminate(), 0)
        self.is_away(site)
        site.start()
        return site.name

    def fault_restart_all(self):
        sites = list(self.sites.values())
        self.publish_meanwhile()
        self.random.shuffle(sites)
        for site in sites:
            site.kill()
        self.random.shuffle(sites)
        for site in sites:
            site.start()
        return ", ".join(site.name for site in sites)

    def fault_cut(self):
        """All links of a site."""
        site = self.random.choice(list(self.sites.values()))
        self.publish_meanwhile()
        for link in self.of(site):
            link.refusing = True
            link.cut()
        self.is_away(site)
        for link in self.of(site):
            link.refusing = False
        return site.name

    def fault_stall(self):
        """They stay open, and nothing comes over them any more."""
        site = self.random.choice(list(self.sites.values()))
        self.publish_meanwhile()
        for link in self.of(site):
            link.stalled = True
        self.is_away(site)
        for link in self.of(site):
            link.stalled = False
        return site.name

    def fault_cut_one(self):
        """The other two links stay; a version may go round."""
        pair, link = self.random.choice(list(self.links.items()))
        dials, to = (self.sites[name] for name in pair)
        link.refusing = True
        link.cut()
        wait_for(f"{dials.name} lost {to.name}", lambda: dials.link(to.name)["state"] != "up")
        self.publish_meanwhile()
        link.refusing = False
        return "-".join(pair)

    def fault_full_disk(self):
        """P10: of the store. A version that comes, or is published, cannot be written down."""
        site = self.random.choice(list(self.sites.values()))
        model = next(m for m, home in HOMES.items() if site.name == home or home == "east")
        self.disks[site].fill()
        self.publish_meanwhile()
        says(site, {"store-down"}, site.name, model)
        self.disks[site].make_room()
        return site.name

    def fault_clock_ahead(self):
        """Hours: certificates are valid, and nothing may come of it."""
        site = self.random.choice(list(self.sites.values()))
        hours = self.random.randint(1, 20)
        self.clocks[site].forward(hours * HOUR_S)
        for link in self.of(site):
            link.cut()
        self.publish_meanwhile()
        self.quiet()
        self.clocks[site].forward(-hours * HOUR_S)
        return f"{site.name} by {hours} h"

    def fault_clock_behind(self):
        """Days: no certificate is valid yet for a site that dials."""
        site = self.sites[self.random.choice(["west", "north"])]
        self.clocks[site].forward(-72 * HOUR_S)
        for link in self.of(site):
            link.cut()
        self.publish_meanwhile()
        says(site, {"clock-skew"}, site.name, "policy")
        self.clocks[site].forward(72 * HOUR_S)
        return site.name

    def faults(self):
        return sorted(name for name in dir(self) if name.startswith("fault_"))

    # ---- quiet ----

    def links_up(self):
        for dials, to in self.links:
            self.sites[dials].wait_link(to)
            self.sites[to].wait_link(dials)

    def is_current(self, site, of, model, head):
        r = row(site, model, of)
        return r["known"] and r["versions"] == 0 and r["reason"] in CURRENT and r["latest"] == head == r["head"]

    def nobody_is_behind(self, model, head):
        """By each site's own word, and by its home's."""
        for site in self.sites.values():
            wait_for(f"{site.name} has {model} {head}; it says {row(site, model, site.name)}",
                     lambda s=site: self.is_current(s, s.name, model, head))
            home = self.sites[HOMES[model]]
            wait_for(f"{home.name} says that {site.name} has {model} {head}",
                     lambda s=site, h=home: self.is_current(h, s.name, model, head))

    def quiet(self):
        """Publishes that are under way end; one more version of each model goes to all of them."""
        for p in self.publishers:
            p.finish()
        for site in self.sites.values():
            wait_for(f"the store of {site.name} takes rows", lambda s=site: s.control("status")["store_ok"])
        self.links_up()
        for p in self.publishers:
            p.publish()
            self.nobody_is_behind(p.model, f"1:{p.head()}")

    def held_bytes_are_right(self):
        """P1: each version that a site says it holds, as a subscriber of it gets it."""
        checked = 0
        for site in self.sites.values():
            for p in self.publishers:
                whole = [v for v in site.versions(p.model) if v["bytes"] and v["held_bytes"] == v["bytes"] and v["state"] in ("ready", "kept")]
                expect(f"{site.name} holds the head of {p.model}", p.head() in [v["number"] for v in whole], True)
                for v in whole:
                    checked += self.is_as_published(site, p, v["number"])
        return checked

    def is_as_published(self, site, p, number):
        into = self.lab.dir / f"read-{self.turns}-{site.name}-{p.model}-{number}"
        done = site.cli("subscribe", p.model, "--version", f"1:{number}", "--into", into, "--timeout", f"{int(PATIENCE_S)}s", check=False)
        if done.returncode == 6 and not any(v["number"] == number and v["held_bytes"] == v["bytes"] for v in site.versions(p.model)):
            return 0  # it left meanwhile: more than `keep` stay until a lease time after a restart is over
        expect(f"exit code of subscribe, at {site.name}: {done.stderr}", done.returncode, 0)
        (got,) = version_folder(into, number).glob("*.safetensors")
        file = self.lab.dir / f"{p.model}-{number}.safetensors"
        if got.read_bytes() != file.read_bytes():
            raise Failed(f"P1: {p.model} {number} at {site.name} is not what was published")
        for path in (*version_folder(into, number).iterdir(),):
            path.unlink()
        return 1

    def nothing_is_damaged(self):
        """A version that was given up in the middle of a publish is counted as lost: nobody was told that it is
        held. The acknowledged ones are compared above."""
        for site in self.sites.values():
            counters = site.counters()
            bad = {name: counters[name] for name in ("versions_broken", "chunks_bad", "verify_bad") if counters[name]}
            expect(f"P1 P3: counters of {site.name}", bad, {})

    def turn(self, fault):
        self.turns += 1
        began = time.monotonic()
        try:
            what = getattr(self, fault)()
            self.quiet()
            checked = self.held_bytes_are_right()
            self.nothing_is_damaged()
        except Failed as failed:
            raise Failed(f"turn {self.turns} of seed {self.seed}, {fault.removeprefix('fault_')}: {failed}") from None
        self.say(f"turn {self.turns}: {fault.removeprefix('fault_')} ({what}), {checked} held versions are right, "
                 f"{time.monotonic() - began:.1f} s")

    def run(self, until, only=None):
        """All faults in an order of chance, then again in another one, while until(turns) is false."""
        self.quiet()
        while True:
            deck = [f for f in self.faults() if only is None or f == f"fault_{only}"]
            self.random.shuffle(deck)
            for fault in deck:
                if until(self.turns):
                    return
                self.turn(fault)
