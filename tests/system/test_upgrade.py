#!/usr/bin/env python3
"""Three sites under traffic go from the release before (old_release.py) to this one and back, one
gateway at a time, in each order (P9).

Covers: gateway/store/store_file.c gateway/store/store_load.c gateway/arena/arena_recover.c
Covers: gateway/daemon/links/statements.c
"""

import itertools
import random
import sqlite3
import threading
import time
import types

import old_release
import signing
from chaos_world import Publisher
from harness import PATIENCE_S, Failed, expect, main, scenario, version_folder, wait_for

NAMES = ("east", "west", "north")
MODEL = "policy"
EVERY_S = 1.0
KEEP = 3


class Fleet:
    """East is home; the others follow it, and each knows each."""

    def __init__(self, lab):
        self.lab = lab
        self.sites = {name: lab.site(name, arena_mib=64) for name in NAMES}
        east, west, north = self.sites.values()
        for dials, to in ((west, east), (north, east), (north, west)):
            dials.peers[to.name] = f"{lab.address}:{to.port}"
            to.peers[dials.name] = None
        west.subscribe.append((MODEL, ["east"]))
        north.subscribe.append((MODEL, ["east", "west"]))
        for site in self.sites.values():
            site.models[MODEL] = dict(home="east", keep=KEEP)
            old_release.give(site, True)
        for site in self.sites.values():
            site.start()
        self.links_up()
        world = types.SimpleNamespace(lab=lab, sites=self.sites, random=random.Random(7))
        self.publisher = Publisher(world, MODEL)
        self.stop = threading.Event()
        self.failed = 0
        self.thread = threading.Thread(target=self.publish, daemon=True)
        self.thread.start()

    def publish(self):
        """A version a second, or as fast as this machine takes them; the same one again after a
        failure, as a gateway that is changed refuses it."""
        while not self.stop.is_set():
            began = time.monotonic()
            self.publisher.begin()
            self.failed += not self.publisher.finish()
            self.stop.wait(max(0.0, EVERY_S - (time.monotonic() - began)))

    def links_up(self):
        for site in self.sites.values():
            for peer in site.peers:
                site.wait_link(peer)

    def head(self):
        return max(self.publisher.held, default=0)

    def whole(self, site):
        """Numbers that it holds, and may give to readers."""
        return [v["number"] for v in site.versions() if v["bytes"] and v["held_bytes"] == v["bytes"]
                and v["state"] in ("ready", "kept") and not v.get("awaits_signature")]

    def goes_on(self):
        """P6: a version that is published after this moment arrives everywhere."""
        began = self.head()
        for site in self.sites.values():
            wait_for(f"{site.name} has a version above {began}; it has {self.whole(site)}", lambda s=site: max(self.whole(s), default=0) > began + 1)

    def configure(self, but=None):
        """New gateways allow those peers to bring no signature that sign nothing now: by a reload."""
        for site in self.sites.values():
            if site is not but and not site.old:
                (site.dir / "tombolod.yaml").write_text(site.config_text())
                expect(f"{site.name} reloads", site.cli("reload", check=False).returncode, 0)

    def change(self, name, old, limited):
        """A new gateway is limited as long as one of the others is old: builds of OLD say protocol 3, and know no
        statements of homes, which came into it later (docs/guides/upgrade.md)."""
        site = self.sites[name]
        spoke = signing.speaks(site)
        old_release.give(site, old)
        site.arguments = ["--protocol-max", "2"] if limited else []
        if signing.speaks(site) < spoke:
            self.configure(but=site)  # those that stay know it before
        expect(f"exit code of {name}", site.daemon.terminate(), 0)
        site.start()
        self.links_up()
        self.goes_on()
        self.configure()

    def end(self):
        """P1 P3: the newest that was acknowledged is everywhere, and each held byte is right."""
        self.stop.set()
        self.thread.join(3 * PATIENCE_S)
        expect("the publisher has ended", self.thread.is_alive(), False)
        if self.publisher.number > self.head() and self.publisher.under_way is None:
            self.publisher.publish()
        head = self.head()
        for site in self.sites.values():
            wait_for(f"{site.name} has {head}; it has {self.whole(site)}", lambda s=site: head in self.whole(s))
            for number in self.whole(site):
                self.compare(site, number)
            counters = site.counters()
            bad = {name: counters[name] for name in ("versions_broken", "chunks_bad", "runs_below", "lives_changed") if counters.get(name)}
            expect(f"counters of {site.name}", bad, {})
        expect("one run from begin to end", {v["run"] for s in self.sites.values() for v in s.versions()}, {1})

    def compare(self, site, number):
        into = self.lab.dir / f"read-{site.name}-{number}-{site.starts}"
        done = site.cli("subscribe", MODEL, "--version", f"1:{number}", "--into", into, "--timeout", f"{int(PATIENCE_S)}s", check=False)
        if done.returncode == 6 and number not in self.whole(site):
            return  # it left meanwhile: more than KEEP stay until a lease time after a restart is over
        expect(f"exit code of subscribe, at {site.name}: {done.stderr}", done.returncode, 0)
        (got,) = version_folder(into, number).glob("*.safetensors")
        if got.read_bytes() != (self.lab.dir / f"{MODEL}-{number}.safetensors").read_bytes():
            raise Failed(f"P1: {number} at {site.name} is not what was published")


def store_before_is_kept(site):
    """The migration left the store as the release before had written it, and it opens."""
    copy = site.dir / "store.sqlite.before-2"
    expect(f"{copy} is there", copy.exists(), True)
    with sqlite3.connect(f"file:{copy}?mode=ro", uri=True) as db:
        expect("integrity", db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    expect("as it was", ("audit" in tables, "record" in tables), (True, False))


def there_and_back(lab, order):
    fleet = Fleet(lab)
    fleet.goes_on()
    for name in order:
        fleet.change(name, old=False, limited=True)
        store_before_is_kept(fleet.sites[name])
    for limited in (False, True):
        for name in order:
            fleet.change(name, old=False, limited=limited)
    for name in order:
        fleet.change(name, old=True, limited=False)
    fleet.end()


def named(order):
    def one(lab):
        there_and_back(lab, order)
    one.__name__ = "up_and_back_" + "_".join(order)
    return scenario(one)


for each in itertools.permutations(NAMES):
    named(each)


if __name__ == "__main__":
    raise SystemExit(main())
