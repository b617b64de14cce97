"""Thousands of versions: whatever is bounded returns to where it was, and what was said is said
again at the same rate.

Environment: TB_SOAK_VERSIONS, of all combinations together (2000); TB_FAULT_TURN chooses the
combination that gets the most of them.

Covers: gateway/catalog/rules/retention.c gateway/catalog/rules/version_removal.c
Covers: gateway/daemon/control/usage_status.c gateway/daemon/copies/copies.c
"""

import collections
import itertools
import math
import os
import pathlib
import random
import sqlite3
import sys
import time

from harness import BUILD, PATIENCE_MS, SOURCE, Failed, Rollout, expect, main, safetensors, scenario, wait_for

sys.path.insert(0, str(SOURCE / "python"))
os.environ.setdefault("TOMBOLO_LIBRARY", str(BUILD / "intra/client/libtombolo.so"))

KEEPS = ((1, 1), (1, 3), (3, 1), (2, 4))  # at home, at the follower
MODELS = (1, 8, 60)
SLOW = 20_000_000 // 8  # bytes a second, of all connections together
COMBINATIONS = list(itertools.product(KEEPS, MODELS, (False, True)))
VERSIONS = int(os.environ.get("TB_SOAK_VERSIONS", "2000"))
CHOSEN = int(os.environ.get("TB_FAULT_TURN", "0")) % len(COMBINATIONS)
CHOSEN_SHARE = 0.1
CHOSEN_LEAST = 700
SHARES = {1: 3, 8: 5, 60: 17}  # with many models it takes more versions until each has its past
BYTES = {False: 4096, True: 65536}  # over a slow link a version of random bytes takes 26 ms, longer than the trainer
ALLOWED_OF = 0.02
ALLOWED = 1 + ALLOWED_OF
PAST = 8     # of a model, versions that ended and are remembered
SETTLED = 20  # of a model, versions after which as many are remembered and stored as ever will be
MEASURED = 200  # versions: over fewer a leak would not stand out
LEAK = 4     # versions for each row that a table may have more than before: a leak has a row, or several, for each
# Each new run, and each withdrawal, has a row in a table and in the store, until there are 1,024.
ROW_EACH = {"runs": "runs", "run": "runs", "run_owner": "runs", "operator": "withdrawals", "withdrawals": "withdrawals", "withdrawals_in_all": "withdrawals", "withdrawn": "withdrawals"}
HELD_AFAR = ("versions", "references")  # the third site's too, for a lease time after each of its lives: their peak is left to chance
REFERENCES = 4  # of a model's kept versions, by ranks, workers and west. That north has a version ends with the version's row
# They fill up to their bound, and the oldest goes; sums of the audit record go with their minute,
# and what came of frames that are under way goes with them.
CACHES = ("encoded_bytes", "idle_layout_bytes", "audit_sums", "audit_rows", "partial_frame_bytes", "statements", "statements_in_all")
RECORD = 1 << 20  # audit.bytes: of 700 versions its share is full
SILENCE_S = 3
LEASE_S = 3.2  # of session.lease_ms here, and a tick: a site that is up so long has said what it still has
STILL_S = 0.2
# How often in each stretch something comes or goes, at least, and then once in so many versions.
COMINGS = {"reader": (4, 41), "group": (2, 113), "gateway": (2, 197), "trainer": (2, 151), "withdraw": (2, 97)}


def event_of(line):
    """`version.state`, of whatever version."""
    return " ".join(line.split()[1:2])


class Sample:
    """The use of a gateway, once it has nothing to do."""

    def __init__(self, site):
        pid = site.daemon.popen.pid
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        self.memory = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
        self.descriptors = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
        self.store = self.store_rows(site)
        expect(f"P7: the audit record of {site.name} is within its bound", self.record_bytes(site) <= RECORD, True)
        self.tables = {t["table"]: t for t in site.control("status")["tables"]}
        self.lines = len(site.daemon.logged())
        self.events = self.events_of(site)

    @staticmethod
    def events_of(site):
        """How often each event came, with the lines that a limit left out, once all of those are told."""
        def told():
            lines = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in site.daemon.logged("log.suppressed")]
            return sum(int(line["lines"]) for line in lines) == site.counters()["lines_suppressed"] and (lines,)
        (left_out,) = wait_for("suppressed lines are told", told)
        events = collections.Counter(event_of(line) for line in site.daemon.logged())
        for line in left_out:
            events[line["lines_of"]] += int(line["lines"])
        return events

    @staticmethod
    def record_bytes(site):
        db = sqlite3.connect(f"file:{site.dir / 'store.sqlite'}?mode=ro", uri=True)
        try:
            return db.execute("SELECT COALESCE(SUM(bytes), 0) FROM record").fetchone()[0]
        finally:
            db.close()

    @staticmethod
    def store_rows(site):
        """Of each table but the audit record and the signatures, which have bounds of their own (TB_STORE_SIGNED_MAX of a kind)."""
        db = sqlite3.connect(f"file:{site.dir / 'store.sqlite'}?mode=ro", uri=True)
        try:
            names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite%'")]
            return {name: db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in names if name not in ("record", "signed")}
        finally:
            db.close()


class Soak:
    def __init__(self, lab, combination, versions):
        import tombolo
        self.tombolo = tombolo
        (self.home_keep, self.follower_keep), count, self.slow = combination
        self.versions = versions
        self.models = [f"m{i:02}" for i in range(count)]
        self.random = random.Random(7)
        self.lab = lab
        self.sites_start()
        self.weights = bytearray(BYTES[self.slow])
        self.file = lab.dir / "w.safetensors"
        safetensors(self.file, {"w": ("U8", [len(self.weights)], bytes(self.weights))})
        self.runs, self.numbers, self.uids = {}, dict.fromkeys(self.models, 0), {}
        self.published = self.trainers = self.came = 0
        self.remembered = collections.Counter()  # runs that were opened, versions that were withdrawn
        self.trainer = None
        self.trainer_comes()

    def sites_start(self):
        """West follows east; a third site, which comes and goes, follows west."""
        room = 64 if len(self.models) < 60 else 192  # an arena has a slot for each 256 KiB, and a version takes two
        self.east, self.west, self.north = (self.lab.site(name, arena_mib=room) for name in ("east", "west", "north"))
        for site in (self.east, self.west, self.north):
            site.extra["audit"] = {"bytes": "1MiB"}
        link = self.lab.link(self.east)
        if self.slow:
            link.bytes_per_s, link.shared = SLOW, True
            for site in (self.east, self.west):  # with four, memory takes 1,600 versions to settle (docs/benchmarks.md)
                site.extra["link"] = {"streams": 1}
        self.west.peers = {"east": f"127.0.0.1:{link.port}", "north": None}
        self.east.peers["west"] = None
        self.north.peers["west"] = f"{self.lab.address}:{self.west.port}"
        self.north.listen = False
        for model in self.models:
            self.east.models[model] = dict(home="east", keep=self.home_keep)
            for site, source in ((self.west, "east"), (self.north, "west")):
                site.models[model] = dict(home="east", keep=self.follower_keep)
                site.subscribe.append((model, [source]))
        self.east.start()
        self.west.start()
        self.west.wait_link("east")

    # ---- what happens ----

    def trainer_comes(self):
        """A trainer that follows another one: a new run of each model, which shuts the one
        before out."""
        self.trainer_leaves()
        self.trainers += 1
        self.trainer = self.tombolo.Session(f"unix:{self.east.session_socket}", name=f"trainer-{self.trainers}", host="a")
        self.registration = self.trainer.register({"w": ("U8", (len(self.weights),), self.weights)})
        self.runs = {m: self.trainer.run_open(m, f"run-{self.trainers}") for m in self.models}
        self.remembered["runs"] += len(self.models)

    def trainer_leaves(self):
        """As a trainer does: once its gateway has what it published."""
        if self.trainer is not None:
            for model, uid in self.uids.items():
                wait_for(f"east has {model} {self.numbers[model]}", lambda m=model, u=uid: self.east.holds(u, m))
            self.trainer.close()
        self.trainer = None

    def publish(self, model, fast):
        self.numbers[model] += 1
        self.published += 1
        if fast and self.slow:  # no difference helps
            self.weights[:] = self.random.randbytes(len(self.weights))
        self.weights[self.published % len(self.weights)] ^= 1 + self.published % 255
        info = self.trainer.publish(model, self.runs[model], self.numbers[model], registration=self.registration)
        self.uids[model] = str(info.uid)

    def arrives(self, model, site=None):
        site = site or self.west
        wait_for(f"{site.name} has {model} {self.numbers[model]}", lambda: self.is_gone(model) or site.holds(self.uids[model], model))

    def is_gone(self, model):
        return model not in self.uids

    def heads_arrive(self, site=None):
        """P6: the newest of each model, however many were skipped."""
        for model in self.uids:
            self.arrives(model, site)

    def reader(self, model):
        self.arrives(model)
        buffer = bytearray(len(self.weights))
        with self.tombolo.Session(f"unix:{self.west.session_socket}", name=f"rollout-{self.came}", host="b") as rollout:
            subscription = rollout.subscribe(model, group=f"g{self.came}",
                                             registration=rollout.register({"w": ("U8", (len(buffer),), buffer)}))
            version = rollout.wait(model, timeout_ms=PATIENCE_MS)
            while str(version.uid) != self.uids[model]:
                version = rollout.wait(model, after=version.uid, timeout_ms=PATIENCE_MS)
            subscription.stage(version.uid, timeout_ms=PATIENCE_MS)
            subscription.activate(version.uid)
            expect("P1: the bytes activated are those published", buffer == self.weights, True)

    def group(self, model):
        """Two workers that switch together. One is killed, one leaves."""
        self.arrives(model)
        ranks = [Rollout(self.lab, self.west, f"rank{i}-{self.came}", self.file, group=f"e{self.came}", index=i, count=2, model=model)
                 for i in range(2)]
        for r in ranks:
            r.stage(self.uids[model])
        for r in ranks:
            r.activate(self.uids[model])
        ranks[0].worker.kill()
        ranks[1].worker.ok("close")
        ranks[1].worker.popen.stdin.close()
        ranks[1].worker.ended()

    def withdraw(self, model):
        reply = self.east.control("withdraw", model=model, version=str(self.numbers[model]))
        expect("withdrawn", reply["ok"], True)
        self.remembered["withdrawals"] += 1
        del self.uids[model]

    def trainer_follows(self, _):
        self.trainer_comes()

    def gateway(self, _):
        """North gets what there is; it is killed and leaves in turn."""
        self.north.start()
        self.heads_arrive()
        self.heads_arrive(self.north)
        if self.north.starts % 2:
            self.north.kill()
        else:
            expect("exit code of north", self.north.daemon.terminate(), 0)

    def north_stays(self):
        """For a lease time: so long west believes what north had before. Then both hold the same."""
        self.north.start()
        self.heads_arrive()
        self.heads_arrive(self.north)
        up = time.monotonic()
        wait_for("north has been up for a lease time", lambda: time.monotonic() - up > LEASE_S)
        expect("exit code of north", self.north.daemon.terminate(), 0)

    def kill(self, site):
        self.trainer_leaves()
        site.kill()
        site.start()
        self.west.wait_link("east")
        self.trainer_comes()

    def plan(self, versions, once):
        """After which versions of a stretch what comes. The same for each stretch of as many
        versions."""
        ways = dict(reader=self.reader, group=self.group, withdraw=self.withdraw, trainer=self.trainer_follows, gateway=self.gateway)
        plan = collections.defaultdict(list)
        for what in COMINGS:
            times = 1 if once else self.times(what, versions)
            for k in range(times):
                plan[(2 * k + 1) * versions // (2 * times)].append(ways[what])
        return plan

    def lead(self, versions):
        """Before the first stretch, so that this ends as the others do: what a site held during
        the last few versions is remembered."""
        for _ in range(versions):
            self.publish(self.models[self.published % len(self.models)], True)

    def stretch(self, versions, once=False):
        """Publishes the first half as fast as it can, and versions are skipped; each of the
        second half arrives."""
        plan = self.plan(versions, once)
        marks = [self.samples()]
        for n in range(1, versions + 1):
            model = self.models[self.published % len(self.models)]
            fast = n <= versions // 2
            self.publish(model, fast)
            if not fast:
                self.arrives(model)
            for comes in plan[n]:
                if not self.is_gone(model):
                    self.came += 1
                    comes(model)
            if n in (versions // 2, versions):
                self.heads_arrive()
                if not once:
                    self.north_stays()
                marks.append(self.samples())
        return marks

    # ---- what is looked at ----

    def samples(self):
        """Once both have done what there was to do: then the log is still, and the store has it
        all."""
        wait_for("both gateways are still", lambda: self.is_still(STILL_S))
        return {s.name: Sample(s) for s in (self.east, self.west)}

    def is_still(self, seconds):
        sites = (self.east, self.west)
        before = [len(s.daemon.logged()) for s in sites]
        time.sleep(seconds)
        return before == [len(s.daemon.logged()) for s in sites] and not any(s.control("status")["store_waiting"] for s in sites)

    def compare(self, before, half_way, now, versions, remembered):
        for name in before:
            b, h, n = before[name], half_way[name], now[name]
            # The first time that something comes or goes, a thread's heap may get a MiB that it
            # keeps. A leak goes on in the second half.
            if n.memory > b.memory * ALLOWED and n.memory > h.memory * (1 + ALLOWED_OF / 2):
                raise Failed(f"{name}: memory grew from {b.memory} to {h.memory} to {n.memory} over {versions} versions")
            if n.descriptors > b.descriptors * ALLOWED + 1:  # a stream may be dialled again at that moment
                raise Failed(f"{name}: descriptors grew from {b.descriptors} to {n.descriptors} over {versions} versions")
            spoken_of = n.tables["versions"]["used"] + REFERENCES * len(self.models)
            for table, t in n.tables.items():
                if not (table == "references" and t["used"] <= spoken_of):
                    self.compare_table(f"{name}: table {table}", table, b.tables[table], t, versions, remembered[ROW_EACH.get(table)])
            for table, rows in n.store.items():
                was = b.store[table] + remembered[ROW_EACH.get(table)]
                if rows > max(was * ALLOWED, was + 2):
                    raise Failed(f"{name}: rows of {table} in the store grew from {b.store[table]} to {rows}")

    @staticmethod
    def compare_table(what, table, was, now, versions, remembered):
        """Of few rows one or two are on their way at any moment; and no table has a row more for
        each version."""
        if table in CACHES:
            return
        most = (was["used"] if table in HELD_AFAR else was["most"]) + remembered
        if now["used"] > max(most * ALLOWED, most + 2):
            raise Failed(f"{what} grew from {was} to {now}")
        if not table.endswith("_bytes") and now["used"] > was["used"] + max(remembered, versions // LEAK):
            raise Failed(f"{what} grew from {was} to {now} over {versions} versions")

    def times(self, what, versions):
        """How often it comes or goes in a stretch of as many versions."""
        least, period = COMINGS[what]
        return max(least, versions // period) // 2 * 2

    def compare_lines(self, one, two, versions):
        """Two stretches of as many versions in which the same came and went.

        In the second part of each, every version arrives: what all of them log is logged as
        often, within 2 % and the two versions that may be on their way at either end. An event of chance (a lost stream) varies by the root
        of its number: three times that. A gateway that comes or goes takes the ends of versions with it: how many it held at that moment is
        left to chance. In the first part chance decides how many versions are skipped. A version that is skipped logs in place of one that
        arrives: so no event is there more often than in the second part, or once a version."""
        for name in one[0]:
            fast, paced = ([m[part + 1][name].events - m[part][name].events for m in (one, two)] for part in (0, 1))
            for event in set(paced[0]) | set(paced[1]):
                was, now = paced[0][event], paced[1][event]
                chance = 3 * math.sqrt(was + now) if max(was, now) < versions // 2 else ALLOWED_OF * max(was, now) + 2
                if event == "version.state":
                    chance += self.times("gateway", versions) * (self.home_keep + self.follower_keep + 1) * len(self.models)
                if abs(now - was) > chance:
                    raise Failed(f"{name}: {now} lines of {event} where {versions // 2} versions arrived, and {was} before")
            for event, now in fast[1].items():
                most = max(fast[0][event], paced[0][event], versions // 2)
                if now > most * ALLOWED + 3 * math.sqrt(now):
                    raise Failed(f"{name}: {now} lines of {event} where {versions // 2} versions were published, and {most} before")

    def silent(self):
        """A gateway that has nothing to do has nothing to say: what failed is told once, not
        each time it is tried."""
        self.trainer_leaves()
        for site in (self.east, self.west):
            wait_for(f"{site.name} has no worker", lambda s=site: s.control("status")["session_count"] == 0)
        wait_for(f"neither gateway logs anything for {SILENCE_S} s", lambda: self.is_still(SILENCE_S))

    def bounded(self, now):
        """The bounds of the configuration, however few versions there were."""
        each = self.home_keep + self.follower_keep + PAST + 4
        for name, sample in now.items():
            for table, t in sample.tables.items():
                expect(f"{name}: rows that table {table} refused", t["refused"], 0)
            rows = sample.tables["versions"]["used"]
            if rows > each * len(self.models):
                raise Failed(f"{name}: {rows} rows of versions for {len(self.models)} models")


def soak(lab, combination, versions):
    began = time.monotonic()
    s = Soak(lab, combination, versions)
    first = max(versions // 10, SETTLED * len(s.models))
    half = max(versions - first, 0) // 2
    if half < MEASURED // 2:  # tables are bounded all the same
        last = s.stretch(versions, once=True)[-1]
    else:
        s.lead(max(first - half, 0))
        s.stretch(min(first, half))
        at, before = s.published, s.remembered.copy()
        one, two = s.stretch(half), s.stretch(half)
        last = two[-1]
        s.compare(one[0], one[-1], last, s.published - at, s.remembered - before)
        s.compare_lines(one, two, half)
        s.silent()
        s.trainer_comes()
    s.bounded(last)
    for site in (s.west, s.east):
        s.kill(site)
        for model in s.models:
            s.publish(model, False)
        s.heads_arrive()
    s.trainer_leaves()
    print(f"keep {s.home_keep}/{s.follower_keep}, {len(s.models)} models, {'20 Mbit/s' if s.slow else 'fast link'}: "
          f"{s.published} versions in {time.monotonic() - began:.0f} s; "
          + "; ".join(f"{name}: {last[name].memory >> 10} KiB, {last[name].descriptors} descriptors, "
                      f"{last[name].tables['versions']['used']} of {last[name].tables['versions']['bound']} version rows, "
                      f"{last[name].lines} log lines" for name in last), flush=True)


def share(index):
    """The chosen one has at least 700, and as many as it needs to be measured."""
    count = COMBINATIONS[index][1]
    rest = VERSIONS * (1 - CHOSEN_SHARE) if VERSIONS * CHOSEN_SHARE > CHOSEN_LEAST else max(VERSIONS - CHOSEN_LEAST, 0)
    one = int(rest * SHARES[count] / (len(COMBINATIONS) // len(MODELS) * sum(SHARES.values())))
    if index != CHOSEN:
        return one
    return max(one, min(VERSIONS, max(CHOSEN_LEAST, int(VERSIONS * CHOSEN_SHARE), SETTLED * count + 2 * MEASURED)))


def add(index):
    (home, follower), count, slow = COMBINATIONS[index]

    def one(lab):
        soak(lab, COMBINATIONS[index], share(index))
    one.__name__ = f"versions_for_ever_{home}_{follower}_{count}_{'slow' if slow else 'fast'}"
    one.__doc__ = "P7 P6: tables, memory, descriptors and the store stay as they are, whatever comes and goes."
    scenario(one)


for i in range(len(COMBINATIONS)):
    add(i)

if __name__ == "__main__":
    sys.exit(main())
