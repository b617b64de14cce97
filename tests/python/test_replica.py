"""A replica of two ranks, as threads of this process: all go the same way, also where one of them fails.

Covers: python/tombolo/integrations/replica.py
"""

import array
import os
import sys
import threading
from types import SimpleNamespace
from unittest import mock

import packages  # noqa: F401
from harness import PATIENCE_S, Failed, expect, main, scenario

import tombolo
from tombolo.integrations import replica
from tombolo.memory import Box


class Ranks:
    """The messages of two ranks to each other."""

    def __init__(self):
        self.barrier, self.said = threading.Barrier(2), [None, None]

    def gather(self, rank, mine):
        self.said[rank] = mine
        self.barrier.wait(PATIENCE_S)
        said = list(self.said)
        self.barrier.wait(PATIENCE_S)
        return said


class Engine(replica.Engine):
    """fails: what its loader raises, one behind another; None: it loads."""

    ranks = 2

    def __init__(self, rank, between):
        self.rank, self.between, self.loaded, self.fails = rank, between, {}, []

    def gather(self, mine):
        return self.between.gather(self.rank, mine)

    def load(self, pairs):
        error = self.fails.pop(0) if self.fails else None
        if error is not None:
            raise error
        self.loaded = {name: bytes(tensor) for name, tensor in pairs}


def two(lab, **options):
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=8)
    site.start()
    os.environ["TOMBOLO_GATEWAY"] = f"unix:{site.session_socket}"
    between = Ranks()
    engines = [Engine(rank, between) for rank in range(2)]
    return [replica.Replica("policy", None, engine, group="engine", timeout_s=PATIENCE_S, **options) for engine in engines]


def both(replicas, call):
    """The error of each, and whether the last one alone is to raise it further."""
    failed = [None, None]

    def run(rank):
        try:
            call(replicas[rank])
        except replica.Failed as error:
            failed[rank] = error
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def well(replicas, call):
    expect("failed", both(replicas, call), [None, None])


def badly(replicas, call, *words):
    failed = both(replicas, call)
    expect("raised on both", [error is not None for error in failed], [True, True])
    for error in failed:
        for word in words:
            expect(f"{word!r} in {error}", word in str(error), True)


def publish(step, byte, run="key"):
    tombolo.publish("policy", step, {"w": array.array("B", bytes([byte]) * 4)}, run=run).wait_held(timeout=PATIENCE_S)


def loaded(replicas):
    return [r._engine.loaded["w"][0] for r in replicas]


@scenario
def a_newer_runs_version_of_that_number_is_loaded(lab):
    """P2: the number alone says nothing. The same version once more is not loaded again."""
    replicas = two(lab)
    publish(5, 1)
    well(replicas, lambda r: r.update(5))
    expect("loaded", (loaded(replicas), [r.version() for r in replicas]), ([1, 1], [5, 5]))
    for r in replicas:
        r._engine.fails = [AssertionError("it has that one")]
    well(replicas, lambda r: r.update(5))
    for r in replicas:
        r._engine.fails = []
    publish(5, 2, run="another")
    replicas[0]._engine.fails = [OSError("of the newer run's")]
    badly(replicas, lambda r: r.update(5), "cannot load version 5: rank 0: OSError")
    expect("the older run's again", (loaded(replicas), [r.version() for r in replicas]), ([1, 1], [5, 5]))
    well(replicas, lambda r: r.update(5))
    expect("the newer run's", loaded(replicas), [2, 2])
    for r in replicas:
        r.close()
    tombolo.close_publishers()


@scenario
def ranks_that_differ_are_a_broken_replica(lab):
    """P2 P10: one of them computes from the version and the other does not. Each says so, and neither goes on alone;
    the next version mends it."""
    replicas = two(lab)
    publish(5, 1)
    well(replicas, lambda r: r.update(5))
    one = replicas[1]
    one._staged = lambda core, step: (replica.Replica._staged(one, core, step)[0], False)
    badly(replicas, lambda r: r.update(5), "ranks have different versions 5", "broken")
    del one._staged
    expect("untouched", loaded(replicas), [1, 1])
    for r in replicas:
        r._engine.loaded = {}
    well(replicas, lambda r: r.update(5))
    expect("loaded again, as it was broken", loaded(replicas), [1, 1])
    publish(6, 2)
    one._choose = lambda: 1 / 0
    well(replicas, lambda r: r.update(6))
    expect("mended", (loaded(replicas), [r._broken for r in replicas]), ([2, 2], [False, False]))
    for r in replicas:
        r.close()
    badly(replicas, lambda r: r.update(6), "cannot find the ways of version 6: rank 1: ZeroDivisionError")
    expect("neither has a core", [r.core for r in replicas], [None, None])
    del one._choose
    well(replicas, lambda r: r.update(6))
    for r in replicas:
        r.close()
    tombolo.close_publishers()


@scenario
def a_failure_on_the_way_back_is_said_with_its_cause(lab):
    """P10: and such a replica loads the version that it seems to have."""
    replicas = two(lab)
    publish(1, 1)
    well(replicas, lambda r: r.update(1))
    publish(2, 2)
    replicas[0]._engine.fails = [OSError("on the way"), OSError("and back")]
    badly(replicas, lambda r: r.update(2), "cannot load version 2: rank 0: OSError: on the way", "cannot go back to version 1: rank 0: OSError: and back", "broken")
    expect("what it seems to have", [r.version() for r in replicas], [1, 1])
    replicas[0]._engine.loaded = {}
    well(replicas, lambda r: r.update(1))
    expect("loaded", loaded(replicas), [1, 1])
    ends = [OSError("at the end")]
    replicas[1]._engine.end_reload = lambda modules: raise_(ends.pop()) if ends else None
    badly(replicas, lambda r: r.update(2), "cannot finish version 2: rank 1: OSError: at the end")
    replicas[0]._engine.loaded = {}
    well(replicas, lambda r: r.update(2))
    expect("and the next, at the second time", loaded(replicas), [2, 2])
    for r in replicas:
        r.close()
    tombolo.close_publishers()


@scenario
def names_and_shapes_are_asked_for_and_not_staged(lab):
    """P7: a version that is looked at takes no memory of the first rank. A gateway of the release before answers
    as to "site"; from there the version is staged for it."""
    replicas = two(lab)
    publish(1, 1)
    staged, stage = [], tombolo.Core.stage
    with mock.patch.object(tombolo.Core, "stage", lambda *args: staged.append(args[1]) or stage(*args)):
        well(replicas, lambda r: r._plan(1))
        expect("asked for", ([r._manifest for r in replicas], staged), ([{"w": ("U8", (4,))}] * 2, []))
        for r in replicas:
            r.close()
        with mock.patch.object(tombolo.Session, "tensors", lambda *_: None):
            well(replicas, lambda r: r._plan(1))
    expect("staged", ([r._manifest for r in replicas], staged), ([{"w": ("U8", (4,))}] * 2, [1]))
    for r in replicas:
        r.close()
    tombolo.close_publishers()


def raise_(error):
    raise error


class Values(list):
    """As much of a tensor as a box needs."""

    def copy_(self, other):
        self[:] = other

    def __getitem__(self, at):
        return Values(super().__getitem__(at[0])) if isinstance(at, tuple) else super().__getitem__(at)


@scenario
def boxes_that_were_half_copied_go_back_too(lab):
    """P2: those that the library does not write, beside a loader that writes the others."""
    engine = replica.Engine()
    engine.load = lambda pairs: next(pairs) # it need not read all
    made = replica.Replica("policy", None, engine)
    box = Box("w", (4,), (1,), (2,), Values([7, 7]))
    made.ways, made._copied = SimpleNamespace(named=["n"], boxes=[box], layerwise=[]), [box]
    core = SimpleNamespace(follower=SimpleNamespace(version=SimpleNamespace(uid=1)), named=lambda step: iter([("n", None), ("w", Values([10, 11, 12, 13]))]))
    try:
        made._go_back(core, "go back", [], None, replica.Failed("why"))
    except replica.Failed as error:
        raise Failed(str(error)) from None
    expect("the part of the version before", list(box.tensor), [11, 12])


@scenario
def the_first_rank_asks_as_the_session_that_it_is(lab):
    """P10: a gateway that lets in certificates alone gets them from each session; those of the group are of no use to it."""
    asked = {}

    class Core:
        def __init__(self, model, **options):
            asked.update(options, model=model)

        def close(self):
            asked["closed"] = True
    replica.Core, core = Core, replica.Core
    try:
        made = replica.Replica("policy", None, replica.Engine(), gateway="g:1", group="engine", cert="c.pem", prove="always", update="patch")
        expect("its answer", made._ask(lambda core: 5), 5)
    finally:
        replica.Core = core
    expect("options", asked, dict(model="policy", gateway="g:1", cert="c.pem", prove="always", closed=True))


if __name__ == "__main__":
    sys.exit(main())
