"""The parts of every measurement: rounds, and the median of their ratios.

A measurement is a generator that yields once a round {key: (a, b)}: a is ours, b is what it is held against, taken one
after the other in the same round, so that whatever else the machine does falls on both. keys.py says which over which."""

import contextlib
import dataclasses
import hashlib
import json
import math
import statistics
import time

import harness
import keys


VOID_MAX = 10     # rounds of one measurement that do not count, before it is given up
SETTLED = 0.05    # of ours, between two rounds that follow one another
SETTLING_MAX = 5  # rounds before such two


class Skip(harness.Skipped):
    """This machine cannot measure it; the text says why."""


@dataclasses.dataclass
class Result:
    key: keys.Key
    pairs: list = dataclasses.field(default_factory=list)
    why_skipped: str = None
    failed: bool = False  # the bench itself, not a goal; there may be rounds from before that
    void: int = 0         # rounds that did not count
    seconds: float = 0    # that measuring took
    together: list = None # with which others

    def ratios(self):
        return [self.key.ratio(a, b) for a, b in self.pairs]

    def ratio(self):
        return statistics.median(self.ratios()) if self.pairs else None

    def as_json(self):
        row = {"ratio": None, "a": None, "b": None, "unit": self.key.unit, "min": None, "max": None,
               "goal": self.key.goal, "why_skipped": self.why_skipped, "void": self.void}
        if self.pairs:
            row.update(ratio=self.ratio(), a=statistics.median(a for a, _ in self.pairs),
                       b=statistics.median(b for _, b in self.pairs), min=min(self.ratios()), max=max(self.ratios()))
        return row


def mean_age(switches, versions, every_s):
    """Mean over time of now - publish call of what one rollout runs, over the time of so many versions, one each every_s.
    switches: [(when, number)], both counted from the first publish call; before them it runs the version before."""
    end, total, at, publish = versions * every_s, 0.0, 0.0, -every_s
    for when, number in [*sorted(switches), (math.inf, None)]:
        until = min(max(when, at), end)
        total += ((until - publish) ** 2 - (at - publish) ** 2) / 2
        at = until
        if number is None or at >= end:
            break
        publish = number * every_s
    return total / end


MEASUREMENTS = {}  # key's name -> generator function; one function may fill several keys


def measurement(*names, quick=True, memory=False):
    """Registers a generator function of (bench) that fills these rows of keys.KEYS. quick False: --quick leaves it out unless
    --only names it. memory: the memory of this machine is the limit, so a round counts only while it is as fast as before
    (quiet_machine.py); the function has nothing to do behind its last round."""
    def register(function):
        function.quick, function.memory = quick, memory
        for name in names:
            if name not in keys.BY_NAME:
                raise KeyError(f"{name} has no row in bench/keys.py")
            if name in MEASUREMENTS:
                raise KeyError(f"{name} is measured twice")
            MEASUREMENTS[name] = function
        return function
    return register


class Kept:
    """The rounds of earlier runs, in a file, so that a measurement of minutes may be taken in pieces, and a run that is ended
    loses one round. They are of one build: that of these programs."""

    def __init__(self, path, programs):
        self.path, self.build = path, hashlib.sha256(b"".join(p.read_bytes() for p in programs if p.exists())).hexdigest()
        self.rows = {}
        if path.exists():
            said = json.loads(path.read_text(encoding="utf-8"))
            if said["build"] != self.build:
                raise ValueError(f"{path} has rounds of another build: remove it, or name another file")
            self.rows = said["rows"]

    def give(self, result):
        row = self.rows.get(result.key.name, {"pairs": [], "seconds": 0})
        result.pairs, result.seconds = [tuple(pair) for pair in row["pairs"]], row["seconds"]

    def take(self, results, seconds):
        """seconds: what this run took for them so far."""
        for r in results:
            self.rows[r.key.name] = {"pairs": r.pairs, "seconds": r.seconds + seconds}
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps({"build": self.build, "rows": self.rows}), encoding="utf-8")
        part.replace(self.path)


def settled(rows):
    """Two rounds that follow one another agree on ours."""
    return len(rows) > 1 and all(abs(rows[-1][name][0] / a - 1) <= SETTLED for name, (a, _) in rows[-2].items() if a)


def steady_rounds(bench, function):
    """As many rounds as are wanted, of which each counts: the first ones, until memory is as fast as it will be, and those in
    which the machine was not quiet are made up for."""
    wanted, waiting, warm = bench.rounds, [], bench.machine is None or bench.rounds == 1
    bench.rounds += VOID_MAX + SETTLING_MAX
    with contextlib.closing(function(bench)) as rounds:
        while wanted > 0:
            if bench.machine is not None:
                bench.machine.begin()
            row = next(rounds)
            why = None if bench.machine is None else bench.machine.why_void()
            if why is not None:
                bench.void += 1
                bench.say(f"  this round does not count: {why}")
                if bench.void >= VOID_MAX:
                    raise Skip(f"not measured: {VOID_MAX} rounds did not count, the last one because {why}")
                continue
            waiting.append(row)
            warm = warm or settled(waiting) or len(waiting) > SETTLING_MAX
            if not warm:
                continue
            for row in waiting[-2:][:wanted]:
                yield row
                wanted -= 1
            waiting = []


def fill(bench, function, results, kept=None):
    """One measurement, whose failure is said and ends no other."""
    bench.say("measuring " + ", ".join(r.key.name for r in results))
    for r in results:
        if kept is not None:
            kept.give(r)
        r.together = results
    bench.rounds = bench.rounds_asked() - min(len(r.pairs) for r in results)
    if bench.rounds <= 0:
        bench.say("  all rounds are kept from earlier runs")
        return
    start, bench.void = time.monotonic(), 0
    try:
        of_memory = getattr(function, "memory", False) and not bench.quick
        for pairs in steady_rounds(bench, function) if of_memory else function(bench):
            for r in results:
                r.pairs.append(pairs[r.key.name])
            if kept is not None:
                kept.take(results, time.monotonic() - start)
            bench.say("  " + ", ".join(f"{r.key.name} {r.pairs[-1][0]:.4g}, {r.pairs[-1][1]:.4g}: {r.ratios()[-1]:.3f}"
                                       for r in results))
    except Skip as skip:
        bench.say(f"  skipped: {skip}")
        for r in results:
            r.why_skipped = None if r.pairs else str(skip)  # the rounds before it count
    except Exception as error:  # noqa: BLE001: whatever it was, the other keys are still worth having
        text = f"the bench failed: {type(error).__name__}: {error}".splitlines()[0]
        bench.say(f"  {text}")
        for r in results:  # and so are the rounds before it
            r.why_skipped, r.failed = None if r.pairs else text, True
    for r in results:
        r.seconds += time.monotonic() - start
        r.void = bench.void
    bench.say(f"  {time.monotonic() - start:.0f} s")


def measure(bench, only, keep=lambda results: None, kept=None):
    """[Result] of all keys that begin with one of `only` (empty: of all), in the order of the table. keep() is told after each
    measurement what there is, so that a run which is ended loses one. kept: a Kept, so that it loses a round."""
    results = {k.name: Result(k) for k in keys.KEYS if not only or any(k.name.startswith(o) for o in only)}
    together = {}
    for name, result in results.items():
        result.why_skipped = result.key.missing if name not in MEASUREMENTS else keys.lacking(result.key)
        if result.why_skipped is None:
            together.setdefault(MEASUREMENTS[name], []).append(result)
    for function, wanted in together.items():
        if bench.quick and not only and not function.quick:
            for r in wanted:
                r.why_skipped = "left out by --quick; --only names it"
        else:
            fill(bench, function, wanted, kept)
            keep([r for r in results.values() if r.pairs or r.why_skipped])
    return list(results.values())
