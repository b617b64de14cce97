"""Thousands of versions: whatever is bounded returns to where it was, and what was said is said again at the same rate.

Environment: TB_SOAK_VERSIONS, of all combinations together (2000); TB_FAULT_TURN chooses the combination that gets the most of them."""

import collections
import itertools
import os
import pathlib
import sys
import time

from harness import BUILD, SOURCE, Failed, expect, main, scenario, wait_for

sys.path.insert(0, str(SOURCE / "python"))
os.environ.setdefault("TOMBOLO_LIBRARY", str(BUILD / "intra/client/libtombolo.so"))

KEEPS = ((1, 1), (1, 3), (3, 1), (2, 4))  # at home, at the follower
MODELS = (1, 8, 60)
SLOW = 20_000_000 // 8
COMBINATIONS = list(itertools.product(KEEPS, MODELS, (False, True)))
VERSIONS = int(os.environ.get("TB_SOAK_VERSIONS", "2000"))
CHOSEN = int(os.environ.get("TB_FAULT_TURN", "0")) % len(COMBINATIONS)
CHOSEN_SHARE = 0.35
BYTES = 4096
ALLOWED = 1.02
PAST = 8     # of a model, versions that ended and are remembered
MEASURED = 300  # versions: over fewer a leak would not stand out
LEAK = 4     # versions for each row that a table may have more than before: a leak has a row, or several, for each
CACHES = ("runs", "withdrawals", "encoded_bytes", "idle_layout_bytes")  # full, the oldest goes
SILENCE_S = 3
SILENT_LINES = 1  # of a gateway that has nothing to do; a line that is repeated for ever comes each tick, or each second
SETTLED = 24  # of a model, versions after which as many are remembered as ever will be


def event_of(line):
    """`version.state`, of whatever version."""
    return " ".join(line.split()[1:2])


class Sample:
    """What a gateway uses, once it has nothing to do."""

    def __init__(self, site):
        pid = site.daemon.popen.pid
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        self.memory = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
        self.descriptors = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
        self.store = self.store_rows(site)
        self.tables = {t["table"]: t for t in site.control("status")["tables"]}
        self.events = collections.Counter(event_of(line) for line in site.daemon.logged())
        self.lines = sum(self.events.values())

    @staticmethod
    def store_rows(site):
        import sqlite3
        db = sqlite3.connect(f"file:{site.dir / 'store.sqlite'}?mode=ro", uri=True)
        try:
            names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite%'")]
            return {name: db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in names if name != "audit"}
        finally:
            db.close()


class Soak:
    def __init__(self, lab, combination, versions):
        import tombolo
        self.tombolo = tombolo
        (self.home_keep, self.follower_keep), count, self.slow = combination
        self.versions = versions
        self.models = [f"m{i:02}" for i in range(count)]
        room = 64 if count < 60 else 192  # an arena has a slot for each 256 KiB, and a version takes two
        self.east, self.west = lab.site("east", arena_mib=room), lab.site("west", arena_mib=room)
        self.lab = lab
        self.link = lab.link(self.east)
        if self.slow:
            self.link.bytes_per_s = SLOW
        self.west.peers["east"] = f"127.0.0.1:{self.link.port}"
        self.east.peers["west"] = None
        self.west.listen = False
        for model in self.models:
            self.east.models[model] = dict(home="east", keep=self.home_keep)
            self.west.models[model] = dict(home="east", keep=self.follower_keep)
            self.west.subscribe.append((model, ["east"]))
        self.east.start()
        self.west.start()
        self.west.wait_link("east")
        self.weights = bytearray(BYTES)
        self.runs, self.numbers, self.uids = {}, dict.fromkeys(self.models, 0), {}
        self.published = 0
        self.trainers = 0
        self.trainer = None
        self.trainer_comes()

    # ---- what happens ----

    def trainer_comes(self):
        """A trainer that follows another one: a new run of each model, which shuts the one before out."""
        self.trainer_leaves()
        self.trainers += 1
        self.trainer = self.tombolo.Session(f"unix:{self.east.session_socket}", name=f"trainer-{self.trainers}", host="a")
        self.registration = self.trainer.register({"w": ("U8", (BYTES,), self.weights)})
        self.runs = {m: self.trainer.run_open(m, f"run-{self.trainers}") for m in self.models}

    def trainer_leaves(self):
        """As a trainer does: once its gateway has what it published."""
        if self.trainer is not None:
            for model, uid in self.uids.items():
                wait_for(f"east has {model} {self.numbers[model]}", lambda m=model, u=uid: self.east.holds(u, m))
            self.trainer.close()
        self.trainer = None

    def publish(self):
        model = self.models[self.published % len(self.models)]
        self.numbers[model] += 1
        self.published += 1
        self.weights[self.published % BYTES] ^= 1 + self.published % 255
        info = self.trainer.publish(model, self.runs[model], self.numbers[model], registration=self.registration)
        self.uids[model] = str(info.uid)

    def head_arrives(self):
        """P6: the newest of each model, however many were skipped."""
        for model, uid in self.uids.items():
            wait_for(f"west has {model} {self.numbers[model]}", lambda m=model, u=uid: self.west.holds(u, m))

    def rollout_comes_and_goes(self, model):
        buffer = bytearray(BYTES)
        with self.tombolo.Session(f"unix:{self.west.session_socket}", name=f"rollout-{self.published}", host="b") as rollout:
            subscription = rollout.subscribe(model, group=f"g{self.published}",
                                             registration=rollout.register({"w": ("U8", (BYTES,), buffer)}))
            version = self.stage_newest(rollout, subscription, model)
            subscription.activate(version.uid)
            expect("P1: bytes activated", bytes(buffer) == bytes(self.weights) or len(self.models) > 1 or
                   version.number != self.numbers[model], True)

    def stage_newest(self, rollout, subscription, model):
        """Where a newer one came between the question and its use, that one."""
        end = time.monotonic() + 30
        while True:
            version = rollout.wait(model, timeout_ms=30000)
            try:
                subscription.stage(version.uid, timeout_ms=30000)
                return version
            except self.tombolo.Error as error:
                if error.name not in ("superseded", "not_found") or time.monotonic() > end:
                    raise

    def withdraw(self, model):
        reply = self.east.control("withdraw", model=model, version=str(self.numbers[model]))
        expect("withdrawn", reply["ok"], True)
        del self.uids[model]

    def turn(self):
        """Every so often something beside publishing."""
        n, model = self.published, self.models[self.published % len(self.models)]
        if n % 41 == 0:
            self.head_arrives()
            self.rollout_comes_and_goes(self.models[0])
        if n % 97 == 0:
            self.withdraw(model) if model in self.uids else None
        if n % 151 == 0:
            self.trainer_comes()

    def go_on(self, until):
        while self.published < until:
            self.publish()
            self.turn()
        for _ in self.models:  # so that none ends with a withdrawn head
            self.publish()
        self.head_arrives()

    def kill(self, site):
        self.trainer_leaves()
        site.kill()
        site.start()
        self.west.wait_link("east")
        self.trainer_comes()

    # ---- what is looked at ----

    def samples(self):
        def quiet():
            rows = [s.control("status") for s in (self.east, self.west)]
            return all(r["store_waiting"] == 0 for r in rows)
        wait_for("both stores have it all", quiet)
        return {s.name: Sample(s) for s in (self.east, self.west)}

    def compare(self, before, now, versions):
        for name in before:
            b, n = before[name], now[name]
            for what in ("memory", "descriptors"):
                was, got = getattr(b, what), getattr(n, what)
                if got > was * ALLOWED + (1 if what == "descriptors" else 0):
                    raise Failed(f"{name}: {what} grew from {was} to {got} over {versions} versions")
            for table, t in n.tables.items():
                self.compare_table(f"{name}: table {table}", table, b.tables[table], t, versions)

    @staticmethod
    def compare_table(what, table, was, now, versions):
        """Of few rows one or two are on their way at any moment; and no table has a row more for each version."""
        if table in CACHES:
            return
        most = was["most"]
        if now["used"] > max(most * ALLOWED, most + 2):
            raise Failed(f"{what} grew from {was} to {now}")
        if not table.endswith("_bytes") and now["used"] > was["used"] + versions // LEAK:
            raise Failed(f"{what} grew from {was} to {now} over {versions} versions")

    def compare_lines(self, samples, versions):
        """Log lines of the last of two stretches of as many versions. What a crossing logs depends on how many crossed, so of an event
        there may be one line a version more; chance decides whether a trainer came in one of them or the other."""
        began, middle, last = samples
        for name in last:
            for event, lines in last[name].events.items():
                later = lines - middle[name].events[event]
                sooner = middle[name].events[event] - began[name].events[event]
                if later > sooner * ALLOWED + versions + 2 * len(self.models) + 8:
                    raise Failed(f"{name}: {later} lines of {event} over {versions} versions, and {sooner} over as many before")

    def silent(self):
        """A gateway that has nothing to do has nothing to say: what failed is told once, not each time it is tried."""
        self.trainer_leaves()
        for site in (self.east, self.west):
            wait_for(f"{site.name} has no worker", lambda s=site: s.control("status")["session_count"] == 0)
        before = self.samples()
        time.sleep(SILENCE_S)
        after = self.samples()
        for name in after:
            said = after[name].events - before[name].events
            if sum(said.values()) > SILENT_LINES:
                raise Failed(f"{name}: nothing happened for {SILENCE_S} s, and the log has {dict(said)}")

    def bounded(self, now):
        """What the configuration allows, however few versions there were."""
        each = self.home_keep + self.follower_keep + PAST + 4
        for name, sample in now.items():
            for table, t in sample.tables.items():
                expect(f"{name}: rows that table {table} refused", t["refused"], 0)
            rows = sample.tables["versions"]["used"]
            if rows > each * len(self.models):
                raise Failed(f"{name}: {rows} rows of versions for {len(self.models)} models")
            for table, rows in sample.store.items():
                most = {"version": 512 + 256, "run": 1024 + 256, "withdrawn": 1024 + 256}.get(table, 256) * len(self.models)
                if rows > most:
                    raise Failed(f"{name}: {rows} rows of {table} in the store")


def soak(lab, combination, versions):
    began = time.monotonic()
    s = Soak(lab, combination, versions)
    s.go_on(max(versions // 10, SETTLED * len(s.models)) if versions >= 500 else versions // 2)
    first = s.samples()
    at = s.published
    half = max(versions - at, 2) // 2
    s.go_on(at + half)
    middle = s.samples()
    s.go_on(s.published + half)
    last = s.samples()
    if s.published - at >= MEASURED:  # tables are bounded all the same
        s.compare(first, last, s.published - at)
        s.compare_lines((first, middle, last), half)
        s.silent()
        s.trainer_comes()
    s.bounded(last)
    for site in (s.west, s.east):
        s.kill(site)
        s.go_on(s.published + len(s.models))
    s.trainer_leaves()
    print(f"keep {s.home_keep}/{s.follower_keep}, {len(s.models)} models, {'20 Mbit/s' if s.slow else 'fast link'}: "
          f"{s.published} versions in {time.monotonic() - began:.0f} s; "
          + "; ".join(f"{name}: {last[name].memory >> 10} KiB, {last[name].descriptors} descriptors, "
                      f"{last[name].tables['versions']['used']} of {last[name].tables['versions']['bound']} version rows, "
                      f"{last[name].lines} log lines" for name in last), flush=True)


def share(index):
    if index == CHOSEN:
        return max(int(VERSIONS * CHOSEN_SHARE), min(VERSIONS, 700))
    return max((VERSIONS - int(VERSIONS * CHOSEN_SHARE)) // (len(COMBINATIONS) - 1), 30)


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
