"""What every measurement is made of: keys, rounds, and the median of their ratios.

A measurement is a generator that yields once a round {key: (a, b)}: a is ours, b is what it is held against, taken one
after the other in the same round, so that whatever else the machine does falls on both. Its ratio is a / b."""

import dataclasses
import statistics


class Skip(Exception):
    """This machine cannot measure it; the text says why."""


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    unit: str
    goal: str      # ">= 0.5": how the ratio is to stand to which number
    what: str      # a
    against: str   # b

    def reached(self, ratio):
        sign, number = self.goal.split()
        return ratio >= float(number) if sign == ">=" else ratio <= float(number)


@dataclasses.dataclass
class Result:
    key: Key
    pairs: list = dataclasses.field(default_factory=list)
    why_skipped: str = None

    def ratios(self):
        return [a / b for a, b in self.pairs]

    def ratio(self):
        return statistics.median(self.ratios()) if self.pairs else None

    def as_json(self):
        row = {"ratio": None, "a": None, "b": None, "unit": self.key.unit, "min": None, "max": None,
               "goal": self.key.goal, "why_skipped": self.why_skipped}
        if self.pairs:
            row.update(ratio=self.ratio(), a=statistics.median(a for a, _ in self.pairs),
                       b=statistics.median(b for _, b in self.pairs), min=min(self.ratios()), max=max(self.ratios()))
        return row


MEASUREMENTS = []  # (keys, function), in the order of the table


def measurement(*keys):
    """Registers a generator function of (bench) that fills these keys."""
    def register(function):
        MEASUREMENTS.append((keys, function))
        return function
    return register


def measure(bench, only):
    """[Result] of all keys that begin with one of `only` (empty: of all)."""
    results = []
    for keys, function in MEASUREMENTS:
        wanted = {k.name: Result(k) for k in keys if not only or any(k.name.startswith(o) for o in only)}
        if not wanted:
            continue
        bench.say("measuring " + ", ".join(wanted))
        try:
            for pairs in function(bench):
                for name, result in wanted.items():
                    result.pairs.append(pairs[name])
                bench.say("  " + ", ".join(f"{n} {r.pairs[-1][0]:.4g} / {r.pairs[-1][1]:.4g} = {r.ratios()[-1]:.3f}"
                                           for n, r in wanted.items()))
        except Skip as skip:
            for result in wanted.values():
                result.pairs, result.why_skipped = [], str(skip)
            bench.say(f"  skipped: {skip}")
        results += wanted.values()
    return results
