"""What scripts read of bench/run: each key once, JSON of one shape, and a reason where there is no number; and a bench that was
killed leaves nothing. No number is looked at.

Covers: bench/run bench/measuring.py bench/report.py
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("bench", "tests/system", "sim")]

os.environ.setdefault("TB_BUILD_DIR", "/nowhere")

import keys  # noqa: E402
import leavings  # noqa: E402
import measuring  # noqa: E402
import report  # noqa: E402

SHAPE = {"ratio", "a", "b", "unit", "min", "max", "goal", "why_skipped"}


class Quiet:
    rounds = 3
    quick = False

    def rounds_asked(self):
        return 3

    def say(self, text):
        pass


def check(what, true):
    if not true:
        sys.exit(f"FAILED: {what}")


def each_key_has_one_row():
    names = [k.name for k in keys.KEYS]
    check(f"names are unique: {names}", len(names) == len(set(names)))
    for k in keys.KEYS:
        sign, number = (k.goal or ">= 1").split()
        check(f"{k.name} has a goal, or none as a floor", sign in (">=", "<=") and float(number) > 0)
        check(f"{k.name} is a floor without a goal", (k.goal is None) == k.name.startswith("floor."))
        check(f"{k.name} is described", k.what and k.against and k.unit and k.missing)


def what_nobody_measures_is_skipped_with_a_reason():
    for r in measuring.measure(Quiet(), []):
        row = r.as_json()
        check(f"{r.key.name}: {row}", set(row) == SHAPE and row["ratio"] is None and row["why_skipped"])


def what_a_key_needs_and_has_not_is_why_it_is_skipped():
    """Each thing that a key may need, by itself; where it is there the key is measured."""
    def measured(_):
        yield {"shm.hop": (1, 1)}

    def row(need, uid=0, root=ROOT, path="/nowhere"):
        key = dataclasses.replace(keys.BY_NAME["shm.hop"], needs=(need,))
        with mock.patch.multiple(keys, KEYS=(key,), ROOT=root), mock.patch.object(os, "geteuid", lambda: uid), \
                mock.patch.dict(os.environ, PATH=str(path)), mock.patch.dict(measuring.MEASUREMENTS, {key.name: measured}):
            return measuring.measure(Quiet(), [])[0].as_json()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "tombolo-test-program"
        program.touch(mode=0o755)
        for need, there, lacking, words in (
                ("root", {}, {"uid": 1000}, "needs root"), ("wan", {}, {"root": folder}, "sim/wan is not in this tree"),
                ("vm", {}, {"root": folder}, "sim/vm is not in this tree"),
                (program.name, {"path": folder}, {}, f"{program.name} is not installed; bench/setup installs it")):
            has, lacks = row(need, **there), row(need, **lacking)
            check(f"with {need}: {has}", has["ratio"] == 1 and has["why_skipped"] is None)
            check(f"without {need}: {lacks}", set(lacks) == SHAPE and lacks["ratio"] is None and words in lacks["why_skipped"])


def ratios_are_medians_the_right_way_up():
    def rounds(_):
        for b in (2, 4, 16):
            yield {"shm.hop": (8, b), "link.cpu": (8, b)}
    hop, cpu = measuring.Result(keys.BY_NAME["shm.hop"]), measuring.Result(keys.BY_NAME["link.cpu"])
    measuring.fill(Quiet(), rounds, [hop, cpu])
    row = hop.as_json()
    check(f"ours / theirs: {row}", (row["min"], row["ratio"], row["max"], row["why_skipped"]) == (0.5, 2, 4, None))
    check(f"theirs / ours: {cpu.as_json()}", cpu.as_json()["ratio"] == 0.5)


def a_failure_is_told_and_ends_nothing():
    def broken(_):
        yield {"tcp.hop": (1, 1)}
        raise RuntimeError("no such thing")
    def broken_at_once(_):
        raise RuntimeError("no such thing")
        yield
    result, none = (measuring.Result(keys.BY_NAME["tcp.hop"]) for _ in range(2))
    measuring.fill(Quiet(), broken, [result])
    check("the rounds before a failure count", result.failed and result.pairs == [(1, 1)] and result.why_skipped is None)
    check("and it is told", "the bench failed after 1 rounds" in report.text_table([result]))
    measuring.fill(Quiet(), broken_at_once, [none])
    check("a failure is no number", none.failed and none.ratio() is None and "no such thing" in none.why_skipped)
    facts = {"rounds": 1, "date": "2001-02-03"}
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.md"
        report.write(page, [measuring.Result(keys.BY_NAME["tcp.hop"], [(0.75, 1.0)])], facts)
        report.write(page, [none], facts)
        check("and replaces none", "|tcp.hop|0.750|" in page.read_text())


def rounds_add_up_over_runs_that_are_ended():
    class Ended(BaseException):
        pass

    def measured(first, ends_at):
        def rounds(bench):
            for a in range(first, first + bench.rounds):
                if a == ends_at:
                    raise Ended
                yield {"shm.hop": (a, 1)}
        return rounds

    def run(file, *how):
        result = measuring.Result(keys.BY_NAME["shm.hop"])
        with contextlib.suppress(Ended):
            measuring.fill(Quiet(), measured(*how), [result], measuring.Kept(file, [program]))
        return [a for a, _ in result.pairs]
    with tempfile.TemporaryDirectory() as folder:
        file, program = pathlib.Path(folder) / "kept", pathlib.Path(folder) / "program"
        program.write_text("one build")
        check("an ended run has one round", run(file, 1, 2) == [1])
        check("the next goes on", run(file, 10, None) == [1, 10, 11])
        check("and a third has nothing to do", run(file, 20, None) == [1, 10, 11])
        kept = measuring.Kept(file, [program])
        kept.rows["shm.hop"]["pairs"] = [(1, 1)]
        result = measuring.Result(keys.BY_NAME["shm.hop"])
        measuring.fill(Quiet(), lambda _: 1 / 0, [result], kept)
        check("a failure takes no round that was kept", result.failed and result.pairs == [(1, 1)])
        program.write_text("another build")
        try:
            run(file, 30, None)
        except ValueError as error:
            check(f"rounds of another build are refused: {error}", "another build" in str(error))
        else:
            check("rounds of another build are refused", False)


def what_is_void_costs_its_own_time_alone():
    import wan_wire

    class Wire:
        said = iter(["", None, "", "late", "", None, "", None])  # by turns what came before, and what is judged

        def verdict(self):
            return next(self.said)
    done = []

    def side(name):
        return lambda: done.append(name) or len(done)
    quiet = Quiet()
    quiet.rounds = 1
    rounds = list(wan_wire.judged_apart(quiet, Wire(), ("shm.hop",), side("ours"), side("theirs")))
    check(f"theirs alone again: {done} {rounds}", done == ["ours", "theirs", "theirs"] and rounds == [{"shm.hop": (1, 3)}])
    Wire.said = iter(["", "late"] * wan_wire.TRIES + ["", None] * 2)
    done.clear()
    rounds = list(wan_wire.judged_apart(quiet, Wire(), ("shm.hop",), side("ours"), side("theirs")))
    check(f"a round that never counted is made up for: {done} {rounds}", rounds == [{"shm.hop": (4, 5)}])


def a_round_in_which_iperf3_failed_does_not_count():
    """It exits 0 then, and has a sentence instead of numbers: that is told, and the round is made up for."""
    import floors
    import over_wan
    import wan_wire
    refused = {"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"}
    good = {"end": {"sum_sent": {"bytes": 1 << 20}, "sum_received": {"bits_per_second": 8e9}}}
    kept = wan_wire.WanWire.run, floors.sites.tool, floors.memcpy_gb_per_s, floors.iperf_server
    heard = []
    try:
        for measure, name in ((lambda quiet: floors.iperf3(quiet), "floor.iperf3"), (carried_once, "wan.2g.mtu1500"), (apart_once, "shm.hop")):
            said = iter([refused, *[good] * 9])
            wan_wire.WanWire.run = lambda *_, said=said, **__: next(said)
            floors.sites.tool = lambda *_, said=said: next(said)
            floors.memcpy_gb_per_s, floors.iperf_server = lambda _: 2, contextlib.nullcontext
            quiet = Quiet()
            quiet.say = heard.append
            result = measuring.Result(keys.BY_NAME[name])
            measuring.fill(quiet, measure, [result])
            check(f"{name}: three rounds all the same: {result}", len(result.pairs) == 3 and not result.failed)
            check(f"{name}: the sentence is told: {heard}", any("iperf3: unable to connect to server: Connection refused" in line for line in heard))

            wan_wire.WanWire.run = lambda *_, **__: refused
            floors.sites.tool = lambda *_: refused
            result = measuring.Result(keys.BY_NAME[name])
            measuring.fill(quiet, measure, [result])
            check(f"{name}: and where no round counts: {result}", "unable to connect to server" in result.why_skipped and not result.failed)
        found = {(4, "bbr", ()): refused, (16, "bbr", ()): good}
        quiet.quick, quiet.congestions = True, lambda: ["bbr"]
        best = over_wan.best(quiet, lambda _size, *how: wan_wire.received_bits(found[how]), 1 << 30, [()])
        check(f"nor does it in the search for the best: {best} {heard[-1]}", best == (16, "bbr", ()) and "4 streams, bbr: iperf3: unable" in heard[-1])
    finally:
        wan_wire.WanWire.run, floors.sites.tool, floors.memcpy_gb_per_s, floors.iperf_server = kept


def iperf3_sends_the_bytes_that_ours_does():
    """Whatever its -n counts: of as many streams as there are, all together. Fewer bytes are over before its windows are open."""
    import harness
    wire, asked = unjudged_wire(), []

    def run(*words, of_all, **_):
        asked.append(words)
        streams, size = (int(words[words.index(key) + 1]) for key in ("-P", "-n"))
        return {"end": {"sum_sent": {"bytes": size if of_all else size // streams}, "sum_received": {"bits_per_second": 8e9}}}
    wire.run = functools.partial(run, of_all=True)
    for streams in (1, 8):
        check(f"on {streams} streams: {asked[-1:]}", wire.iperf(1 << 30, streams, "bbr") == 8 and asked[-1][asked[-1].index("-n") + 1] == 1 << 30)
    wire.run = functools.partial(run, of_all=False)
    try:
        wire.iperf(1 << 30, 8, "bbr")
    except harness.Failed as failed:
        check(f"it is told: {failed}", "134217728 of 1073741824" in str(failed))
    else:
        check("an eighth of the bytes is no measure", False)


def unjudged_wire():
    import wan_wire
    wire = wan_wire.WanWire.__new__(wan_wire.WanWire)
    wire.address = {"a": "", "b": ""}
    wire.serving = lambda *_: contextlib.nullcontext()
    wire.verdict = lambda: None
    return wire


def carried_once(quiet):
    import emulator_keys
    kept = emulator_keys.wan_of
    try:
        emulator_keys.wan_of = lambda *_: contextlib.nullcontext(unjudged_wire())
        yield from emulator_keys.carried_2g(quiet)
    finally:
        emulator_keys.wan_of = kept


def apart_once(quiet):
    import wan_wire
    wire = unjudged_wire()
    yield from wan_wire.judged_apart(quiet, wire, ("shm.hop",), lambda: 1, lambda: wire.iperf(1 << 20, 4, "cubic"))


def a_round_in_which_a_peer_was_void_does_not_count():
    """The better peer's run is void in the first round: the other one is not taken for the best. One that fails by itself is named."""
    import beside_peers
    import wan_wire
    from wan_wire import Void
    said = {beside_peers.OUR_NAME: iter([(2, 1, 1)] * 9), "fast nginx": iter([Void("late"), (1, 1, 1), (1, 1, 1)]),
            "slow nginx": iter([(4, 1, 1)] * 9), "broken": iter([beside_peers.GaveUp("exited 1")] * 9)}

    def row_of(wire, ours, size, theirs=None):
        got = next(said[beside_peers.OUR_NAME if theirs is None else theirs.name])
        if isinstance(got, Exception):
            raise got
        return got
    kept = beside_peers.row_of, beside_peers.Theirs
    quiet, notes, rows = Quiet(), {}, []
    quiet.rounds, quiet.heard = 2, []
    quiet.say = quiet.heard.append
    try:
        beside_peers.row_of = row_of
        beside_peers.Theirs = lambda wire, peer: types.SimpleNamespace(name=peer.name, close=lambda: None)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "dst").mkdir()
            ground = types.SimpleNamespace(dir=pathlib.Path(folder))
            made = [types.SimpleNamespace(name=name, ground=ground) for name in list(said)[1:]]
            rows += wan_wire.rounds_that_count(quiet, lambda: beside_peers.each_once(quiet, None, None, made, 1 << 30, notes))
    finally:
        beside_peers.row_of, beside_peers.Theirs = kept
    goodputs = [beside_peers.pairs_of(row, 1e9, ("cpu", "goodput", "copies"), notes)["goodput"] for row in rows]
    check(f"two rounds, against the best: {goodputs}", goodputs == [(4, 8)] * 2)
    check(f"it says who was void: {quiet.heard}", any("does not count: fast nginx: late" in line for line in quiet.heard))
    check(f"and who was compared: {quiet.heard}", quiet.heard.count("  compared with: fast nginx, slow nginx") == 2)
    left = list(beside_peers.left_out({**notes, "slow nginx": "was slow"}, {"fast nginx": [1, 1], "slow nginx": [1]}, 4))
    check(f"and who was not: {left}", left == [("broken", "exited 1", "", ""), ("slow nginx", "not compared in 1 of 2 rounds: was slow", "", "")])


@contextlib.contextmanager
def told_peers(folder, twice=0.3):
    """A bench whose sides say at once what they are to say: two peers, of which one has a program that is not here. `twice`: the share of the
    file that comes twice when the other one is killed; of ours a tenth does."""
    import beside_peers

    class Here:
        name, needs = "fast nginx", ("tombolo-test-here",)

        def __init__(self, ground):
            self.ground = ground

    class Absent(Here):
        name, needs = "absent nginx", ("tombolo-test-here", "tombolo-test-absent")
    for name in ("tombolo-test-here", "file"):
        (folder / name).touch(mode=0o755)
    os.truncate(folder / "file", 1000)
    (folder / "dst").mkdir()
    ours = types.SimpleNamespace(workers=(), cross=lambda: None, timed=lambda: None)
    instead = {
        "peers": types.SimpleNamespace(PEERS=(Absent, Here), Ground=lambda *_: types.SimpleNamespace(dir=folder)),
        "harness": types.SimpleNamespace(Lab=contextlib.nullcontext), "in_memory": lambda _: contextlib.nullcontext(folder),
        "source_file": lambda *_: folder / "file", "Ours": lambda *_, **__: ours,
        "Theirs": lambda _, peer: types.SimpleNamespace(name=peer.name, close=lambda: None),
        "row_of": lambda _wire, _ours, _size, theirs=None: (1, 1, None) if theirs is None else (2, 2, None),
        "fault_of_ours": lambda *_: (1, 6, 0, 100, ""), "fault_of_theirs": lambda *_: (2, 12, 0, 1000 * twice, "")}
    quiet = Quiet()
    quiet.heard, quiet.tables = [], {}
    quiet.say, quiet.table = quiet.heard.append, lambda name, headings, rows: quiet.tables.update({name: rows})
    with mock.patch.multiple(beside_peers, **instead), mock.patch.dict(os.environ, PATH=str(folder)):
        yield quiet


def measured_beside_peers(quiet, names):
    """What became of keys of a transfer, or, the last of them being `.kill`, of what it does after a fault."""
    import beside_peers
    results = [measuring.Result(keys.BY_NAME[name]) for name in names]
    wire = types.SimpleNamespace(verdict=lambda: None)
    if names[-1].endswith(".kill"):
        measuring.fill(quiet, lambda bench: beside_peers.after_a_fault(bench, wire, names, "over an ocean"), results)
    else:
        measuring.fill(quiet, lambda bench: beside_peers.side_by_side(bench, wire, (*names, None), 1, "on a veth"), results)
    return results


def a_peer_that_is_not_here_is_named_and_not_compared():
    """And where none is here there is no ratio, and the reason says what is lacking."""
    why = "skipped: tombolo-test-absent not installed; bench/setup installs it"
    for names, ratios in ((("link.cpu", "peers.goodput"), (2, 2)), (("peers.ocean.cut", "peers.ocean.kill"), (0.5, 0.1 / 0.3))):
        with tempfile.TemporaryDirectory() as folder, told_peers(pathlib.Path(folder)) as quiet:
            rows = [r.as_json() for r in measured_beside_peers(quiet, names)]
            check(f"against the one that is here: {rows}", all(abs(r["ratio"] - ratio) < 1e-9 for r, ratio in zip(rows, ratios)))
            check(f"which is said: {quiet.heard}", quiet.heard.count("  compared with: fast nginx") == 3 and f"  absent nginx: {why}" in quiet.heard)
            check(f"and in the table: {quiet.tables}", [row[:2] for rows in quiet.tables.values() for row in rows if row[0] == "absent nginx"] ==
                  [("absent nginx", why)])
            os.environ["PATH"] = "/nowhere"
            none = measured_beside_peers(quiet, names)
            check(f"nobody is here: {none}", all(r.ratio() is None and not r.failed and f"{program} not installed" in r.why_skipped
                                                 for r in none for program in ("tombolo-test-here", "tombolo-test-absent")))


def a_peer_that_fails_is_told_by_its_own_words():
    """All of them write to one file, and a failure says how its program ended and what that said last, and nobody else did."""
    import beside_peers
    with tempfile.TemporaryDirectory() as folder:
        ground = types.SimpleNamespace(dir=pathlib.Path(folder))
        for name in ("log", "dst"):
            (ground.dir / name).mkdir()

        def failure(script):
            wire = types.SimpleNamespace(start=lambda _, *words, env, log: subprocess.Popen(words, env=env, stdout=log, stderr=log))
            peer = types.SimpleNamespace(ground=ground, env=None, serve=lambda _: [], pull=lambda _: ("sh", "-c", script))
            theirs = beside_peers.Theirs(wire, peer)
            try:
                theirs.wait(theirs.start())
            except beside_peers.GaveUp as why:
                return str(why)
            return None
        check("well", failure("echo all of it came") is None)
        check("silent, by a signal", failure("kill -SEGV $$") == "ended by SIGSEGV: it said nothing")
        check("with words", failure("echo no keys; exit 3") == "exited 3: no keys")


def what_a_kill_is_held_against_is_a_twentieth_at_least():
    """What a path holds comes twice whoever is killed, so a peer that repeats less has had luck."""
    for theirs, against in ((0.3, 0.3), (0.01, 0.05)):
        with tempfile.TemporaryDirectory() as folder, told_peers(pathlib.Path(folder), theirs) as quiet:
            kill = measured_beside_peers(quiet, ("peers.ocean.cut", "peers.ocean.kill"))[1]
            check(f"{theirs} of it came twice: {kill.pairs}", all(abs(b - against) < 1e-9 for _, b in kill.pairs) and len(kill.pairs) == 3)
    for name in ("continent", "ocean"):
        check(f"{name}'s key says so", "0.05 where that is more" in keys.BY_NAME[f"peers.{name}.kill"].against)


def arenas_have_room_for_the_file_of_data():
    import between_sites
    import beside_peers
    import chains
    import harness
    import hops
    import inside_site
    import rollouts

    class Asked(Exception):
        pass

    class Lab:
        dir = pathlib.Path("/")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def site(self, _name, arena_mib):
            raise Asked(arena_mib)

        def east_west(self, arena_mib, **_):
            raise Asked(arena_mib)

    def asked(do):
        try:
            do()
        except Asked as asked:
            return asked.args[0]
    kept = harness.Lab
    with tempfile.TemporaryDirectory() as folder:
        quiet, file = Quiet(), pathlib.Path(folder) / "file"
        Lab.dir = pathlib.Path(folder)
        quiet.weights = lambda _: file
        with open(file, "wb") as made:
            made.truncate(5 << 30)
        try:
            harness.Lab = Lab
            rooms = [asked(do) for do in (
                lambda: rollouts.home_site(quiet, 64).__enter__(), lambda: between_sites.crossings(Lab(), quiet, 64 << 20),
                lambda: inside_site.version_at_home(quiet, 64).__enter__(), lambda: next(inside_site.publish_hold(quiet)),
                lambda: next(chains.cut_through(quiet)), lambda: hops.Neighbours(Lab(), quiet, 64, ("a", "b")),
                lambda: beside_peers.Ours(None, Lab(), file, 64))]
        finally:
            harness.Lab = kept
    check(f"two versions of 5 GiB: {rooms}", all(mib >= 2 * 5120 for mib in rooms))


def fleets_are_timed_event_by_event():
    """And held against the recurrence, below which no time can be."""
    import fleet_keys
    import harness
    program = """#!/usr/bin/env python3
import json, sys
if sys.argv[1].startswith("--"):
    print(json.dumps({"planned": {"workers_s": {"last": 10}, "floor_s": 9}}))
else:
    print(json.dumps({"workers_s": {"last": LAST, "never": 0}}))
"""
    quiet = Quiet()
    with tempfile.TemporaryDirectory() as folder:
        quiet.folder = pathlib.Path(folder)
        quiet.fleet = quiet.folder / "fleet"

        def rounds(measure, last):
            quiet.fleet.write_text(program.replace("LAST", str(last)))
            quiet.fleet.chmod(0o755)
            return list(measure(quiet))
        check("the floor", rounds(fleet_keys.fleet_floor, 11) == [{"fleet.floor": (11, 9)}] * 3)
        check("the chain", rounds(fleet_keys.fleet_chain, 12) == [{"fleet.chain.n1000": (12, 12)}] * 3)
        try:
            rounds(fleet_keys.fleet_floor, 9.5)
        except harness.Failed as failed:
            check(f"what is below the recurrence: {failed}", "lower bound" in str(failed))
        else:
            check("a time below the recurrence is no result", False)


def what_a_floor_takes_is_chosen_at_the_size_that_is_measured():
    """One way of the pump is faster where little goes, another where as much goes as is measured."""
    import floors
    asked = []

    def tool(words):
        how = dict(zip(words[1::2], words[2::2]))
        asked.append(int(how["--bytes"]))
        rate = 4 if how["--streams"] == (4 if asked[-1] == 1 << 30 else 8) else 2
        return {"seconds": asked[-1] / rate, "gb_per_s": rate}
    kept = floors.sites.tool, floors.memcpy_gb_per_s
    quiet = Quiet()
    quiet.pump, quiet.congestions = "a pump", lambda: ["bbr"]
    try:
        floors.sites.tool, floors.memcpy_gb_per_s = tool, lambda _: 8
        rounds = list(floors.pump(quiet))
    finally:
        floors.sites.tool, floors.memcpy_gb_per_s = kept
    check(f"no run is of another size: {asked}", set(asked) == {1 << 30})
    check(f"it is the fastest: {rounds}", rounds == [{"floor.pump": (4, 8)}] * 3)


def the_pump_over_a_wan_is_the_best_of_blocking_and_batched():
    import harness
    import over_wan
    asked, links, crossed = [], [], []

    def ours(*_, link):
        links.append(link)
        return types.SimpleNamespace(cross=lambda: crossed.append(len(asked)) or (1, 1))

    class Wire:
        address = {"a": "", "b": ""}

        def pump(self, _program, size, streams, congestion, *more):
            asked.append((size >> 20, streams, congestion, *more))
            if size >> 20 == 256:  # another one is the best of the short runs
                return {"gb_per_s": {4: 4, 16: 3}.get(streams, 1) if more else 0.5}
            return {"gb_per_s": 2 if more and streams == 16 else 1}

        def serving(self, *_):
            return contextlib.nullcontext()

        def verdict(self):
            return None
    kept = over_wan.wan_of, over_wan.Ours, harness.Lab
    quiet = Quiet()
    quiet.rounds, quiet.pump, quiet.congestions = 1, None, lambda: ["bbr"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file"
            file.write_bytes(bytes(1000))
            quiet.weights = lambda _: file
            over_wan.wan_of = lambda *_: contextlib.nullcontext(Wire())
            over_wan.Ours = ours
            harness.Lab = contextlib.nullcontext
            rounds = list(over_wan.wan_5g80_jumbo(quiet))
    finally:
        over_wan.wan_of, over_wan.Ours, harness.Lab = kept
    check(f"each of both is tried, the fastest at the size that is measured: {asked}", {len(how) for how in asked[:10]} == {3, 4} and
          [how[0] for how in asked] == [256] * 10 + [2048] * 4)
    check(f"the best of them is what counts: {asked[-1]} {rounds}", asked[-1][1:] == (16, "bbr", "--batched") and rounds[0]["link.wan.5g80.jumbo"][1] == 16)
    check(f"ours finds its number of streams, on a path that it has crossed: {links} {crossed}", links == [{"streams": "auto"}] and len(crossed) == 2)


def the_best_of_theirs_is_the_best_over_the_rounds():
    import over_wan
    leader = over_wan.Leader()
    led = [leader.of(seconds) for seconds in ({"bbr": 2, "cubic": 3}, {"bbr": 3, "cubic": 2.5}, {"bbr": 3, "cubic": 1})]
    check(f"not the luckiest of each: {led}", led == ["bbr", "bbr", "cubic"])


def the_elastic_figure_has_hold_and_age():
    import rollouts
    kept = {name: getattr(rollouts, name) for name in ("home_site", "Wire", "joins_ours", "joins_naive", "publish_at_home")}
    quiet, tables = Quiet(), {}
    quiet.table = lambda name, headings, rows: tables.update({name: (headings, rows)})

    class File:
        def stat(self):
            return os.stat_result(range(10))

    class Wire:
        def shape(self, _):
            pass
    try:
        rollouts.home_site = lambda *_: contextlib.nullcontext((None, None, File(), None, None))
        rollouts.Wire = lambda: contextlib.nullcontext(Wire())
        rollouts.publish_at_home = lambda *_: ({"uid": 1, "hold_ns": 5e7}, 0)
        rollouts.joins_ours = lambda *_: [(4.0, 0.02)] * 8
        rollouts.joins_naive = lambda *_: [9.0] + [7.5] * 7
        rounds = list(rollouts.elastic(quiet))
    finally:
        for name, what in kept.items():
            setattr(rollouts, name, what)
    headings, rows = tables["figure-elastic"]
    check(f"what the key has: {rounds[0]}", rounds[0] == {"figure.elastic": (4.0, (9.0 + 7 * 7.5) / 8)})
    check(f"a heading each: {headings}", len(headings) == len(rows[0]) and headings[5:] == ("hold s, ours", "naive", "age s, ours", "naive"))
    check(f"the first alone: {rows[0]}", rows[0][5:] == ("0.05", "9", "4", "9"))
    check(f"the second is done before the first: {rows[1]}", rows[1][5:] == ("0.05", "9", "5", "9"))
    check(f"all: {rows[7]}", rows[7][5:] == ("0.05", "14.5", "11", "14.5"))


def writing_some_rows_keeps_the_others():
    def results(name, a):
        return [measuring.Result(keys.BY_NAME[name], [(a, 1.0)])]
    facts = {"rounds": 1, "date": "2001-02-03"}
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.md"
        report.write(page, results("shm.hop", 0.25), facts)
        report.write(page, results("tcp.hop", 0.75), facts)
        text = page.read_text()
    check("both rows stand", "|shm.hop|0.250|" in text and "|tcp.hop|0.750|" in text)


def the_page_says_what_the_keys_mean():
    """docs/benchmarks.md has the definitions of this tree, not those of the last run."""
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    section = page[page.index(report.BEGIN):page.index(report.END)].splitlines()
    said = {line.partition(" Skipped: ")[0] for line in section if line.startswith("- `")}
    meant = {report.meaning(k) for k in keys.KEYS}
    check(f"only the page says {sorted(said - meant)}, only bench/keys.py {sorted(meant - said)}", said == meant)


def a_figure_is_of_its_table():
    """Without gnuplot the page has the new table, and not the old drawing beside it."""
    import plots
    table = (["readers", "ours", "naive"], [["1", "0.5", "2"], ["2", "0.5", "4"]])
    kept = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        page, drawn = folder / "page.md", folder / "figure-elastic.svg"
        gnuplot = folder / "gnuplot"  # writes what it is told into the file that it is told
        gnuplot.write_text(f"#!{sys.executable}\nimport re, sys\ntext = sys.stdin.read()\n"
                           "open(re.search(r'set output \"(.*)\"', text)[1], 'w').write(text)\n")
        gnuplot.chmod(0o755)
        try:
            for path, shown in ((name, True), ("/nowhere", False)):
                os.environ["PATH"] = path
                tables = {"figure-elastic": table, "no-figure": table}
                report.write(page, [], {"rounds": 1, "date": "2001-02-03"}, tables, plots.draw(folder, tables))
                check(f"drawn: {page.read_text()}", ("![figure-elastic](figure-elastic.svg)" in page.read_text()) == shown)
                check("and only that", "no-figure.svg" not in page.read_text() and page.read_text().count("|2|0.5|4|") == 2)
        finally:
            os.environ["PATH"] = kept
        check(f"of its rows: {drawn.read_text()}", "1 0.5 2\n2 0.5 4\n" in drawn.read_text())


def the_command_prints_one_object():
    env = dict(os.environ, TB_BUILD_DIR="/nowhere")  # so that nothing is measured
    run = [sys.executable, str(ROOT / "bench/run"), "--json", "--only"]
    done = subprocess.run([*run, "verbs"], env=env, capture_output=True, text=True, timeout=60)
    check(f"exit code: {done.stderr}", done.returncode == 0)
    rows = json.loads(done.stdout)
    check(f"keys: {rows}", set(rows) == {"verbs.hop"})
    check("shape", all(set(r) == SHAPE for r in rows.values()))
    done = subprocess.run([*run, "no.such.key"], env=env, capture_output=True, text=True, timeout=60)
    check("an unknown prefix is refused", done.returncode == 2 and done.stdout == "" and "no.such.key" in done.stderr)
    done = subprocess.run([*run, "verbs", "--data", __file__], env=env, capture_output=True, text=True, timeout=60)
    check(f"a file that is no safetensors file: {done.stderr}", done.returncode == 2 and "no safetensors file" in done.stderr)
    unbuilt = {k: v for k, v in os.environ.items() if k != "TB_BUILD_DIR"}
    done = subprocess.run([*run, "no.such.key"], env=dict(unbuilt, PATH="/nowhere"), capture_output=True, text=True, timeout=60)
    check("and before anything is built", done.returncode == 2)


JOINS = """#!{python}
import json, pathlib, sys
turn = pathlib.Path({turn!r})
turn.write_text(turn.read_text() + "x" if turn.exists() else "x")
if len(turn.read_text()) > {good}:
    sys.exit("no more")
print(json.dumps({{"cpu_s": {cpu_s}, "lease_s": 10}}))
"""


def the_exit_code_says_whether_the_bench_failed():
    """A goal that was missed and a key that is skipped are results; what failed ends no other key, and the exit code is 1."""
    with tempfile.TemporaryDirectory() as folder:
        joins, turn = pathlib.Path(folder) / "sim/fleet/tombolo-fleet-joins", pathlib.Path(folder) / "turn"
        joins.parent.mkdir(parents=True)

        def run(good, cpu_s, *words):
            joins.write_text(JOINS.format(python=sys.executable, turn=str(turn), good=good, cpu_s=cpu_s))
            joins.chmod(0o755)
            turn.unlink(missing_ok=True)
            done = subprocess.run([sys.executable, str(ROOT / "bench/run"), "--json", "--rounds", "2", *words], capture_output=True, text=True,
                                  env=dict(os.environ, TB_BUILD_DIR=folder, PATH=folder), timeout=60)
            rows = json.loads(done.stdout)
            check(f"shape: {rows}", all(set(r) == SHAPE for r in rows.values()))
            return done.returncode, {name: (r["ratio"], r["why_skipped"]) for name, r in rows.items()}
        joined = ("--only", "fleet.joins")
        check("reached", run(2, 5, *joined) == (0, {"fleet.joins": (0.5, None)}))
        check("missed", run(2, 20, *joined) == (0, {"fleet.joins": (2, None)}))
        code, rows = run(2, 5, *joined, "--only", "floor.aes")
        check(f"skipped: {code} {rows}", code == 0 and rows["fleet.joins"] == (0.5, None) and rows["floor.aes"][0] is None and
              "openssl is not installed" in rows["floor.aes"][1])
        check("failed in its second round", run(1, 5, *joined) == (1, {"fleet.joins": (0.5, None)}))
        code, rows = run(2, 5, "--only", "fleet")  # of the others there is no program
        failed = [rows.pop(name) for name in ("fleet.floor", "fleet.chain.n1000")]
        check(f"failed beside another: {code} {rows} {failed}", code == 1 and rows == {"fleet.joins": (0.5, None)} and
              all(ratio is None and "the bench failed" in why for ratio, why in failed))


def left_by(pid):
    """Folders, namespaces and processes of a bench."""
    begins = f"tombolo-bench-{pid}-"
    named = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout if shutil.which("ip") else ""
    return list(leavings.folders(begins)), [n for n in named.split() if n.startswith(f"tb-bench-{pid}-")], leavings.marked("TOMBOLO_BENCH", begins)


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def may_have_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"tb-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


def a_killed_bench_leaves_nothing():
    if not os.path.isdir(os.environ["TB_BUILD_DIR"]) or not may_have_namespaces():
        print("a_killed_bench_leaves_nothing: skipped: namespaces need root and iproute2, and TB_BUILD_DIR a build")
        return
    bench = subprocess.Popen([sys.executable, str(ROOT / "bench/run"), "--quick", "--only", "figure.standalone"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        check("it made folders, namespaces and processes", within(60, lambda: all(left_by(bench.pid))))
    finally:
        bench.kill()
        bench.wait()
    check(f"all of it goes: {left_by(bench.pid)}", within(60, lambda: not any(left_by(bench.pid))))


TEST_WITH_A_LAB = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import harness
lab = harness.Lab()
print(subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid,
      lab.dir, lab.arena_dir, flush=True)
sys.stdin.read()
"""


def what_a_killed_test_left_goes_at_the_next_start():
    """And nothing of a test that runs; nor does a process stay of which no folder tells any more."""
    tests = []

    def begin():
        tests.append(subprocess.Popen([sys.executable, "-c", TEST_WITH_A_LAB, str(ROOT / "tests/system")], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env=env))
        return tests[-1], [pathlib.Path(word) for word in ("/proc/" + tests[-1].stdout.readline()).split()]
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TMPDIR=folder, TB_TEST_SHM=folder)
        try:
            killed, of_killed = begin()
            other, of_other = begin()
            killed.kill()
            killed.wait()
            check(f"it stands there: {of_killed}", all(p.exists() for p in of_killed))
            _, of_last = begin()
            check(f"all of it goes: {of_killed}", within(20, lambda: not any(p.exists() for p in of_killed)))
            check(f"what is in use stays: {of_other}", all(p.exists() for p in of_other))
        finally:
            for test in tests:
                test.kill()
                test.communicate()
    leavings.clear_orphans("tombolo-test")  # of the other two's processes only /proc tells now
    check("without a folder too", within(20, lambda: not of_other[0].exists() and not of_last[0].exists()))


def ages_are_areas():
    """A rollout that never switches ages from one period on; one that switches at once at every step has half a period."""
    check("never", measuring.mean_age([], 2, 10) == 20)
    check("at once", measuring.mean_age([(0, 0), (10, 1)], 2, 10) == 5)
    check("late", abs(measuring.mean_age([(5, 0), (15, 1)], 2, 10) - 10) < 1e-9)


for test in (each_key_has_one_row, what_nobody_measures_is_skipped_with_a_reason, what_a_key_needs_and_has_not_is_why_it_is_skipped,
             ratios_are_medians_the_right_way_up,
             a_failure_is_told_and_ends_nothing, writing_some_rows_keeps_the_others,
             rounds_add_up_over_runs_that_are_ended, a_round_in_which_a_peer_was_void_does_not_count,
             a_peer_that_is_not_here_is_named_and_not_compared, a_peer_that_fails_is_told_by_its_own_words, what_a_kill_is_held_against_is_a_twentieth_at_least,
             a_round_in_which_iperf3_failed_does_not_count, iperf3_sends_the_bytes_that_ours_does, arenas_have_room_for_the_file_of_data,
             fleets_are_timed_event_by_event, what_a_floor_takes_is_chosen_at_the_size_that_is_measured, the_pump_over_a_wan_is_the_best_of_blocking_and_batched,
             the_best_of_theirs_is_the_best_over_the_rounds, the_elastic_figure_has_hold_and_age, what_is_void_costs_its_own_time_alone, a_figure_is_of_its_table,
             the_page_says_what_the_keys_mean,
             the_command_prints_one_object, the_exit_code_says_whether_the_bench_failed,
             ages_are_areas, a_killed_bench_leaves_nothing, what_a_killed_test_left_goes_at_the_next_start):
    test()
    print(f"{test.__name__}: ok")
