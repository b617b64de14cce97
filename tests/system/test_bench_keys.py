"""Rows of bench/run as scripts read them: each key once, and a reason where there is no number. No
number is looked at.

Covers: bench/keys.py bench/measuring.py bench/wan_wire.py bench/beside_peers.py
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import subprocess
import tempfile
import types
from unittest import mock

from bench_quiet import ROOT, SHAPE, Quiet, check, run_all
import keys
import measuring
import report


def each_key_has_one_row():
    names = [k.name for k in keys.KEYS]
    check(f"names are unique: {names}", len(names) == len(set(names)))
    for k in keys.KEYS:
        sign, number = (k.goal or ">= 1").split()
        check(f"{k.name} has a goal, or none as a floor", sign in (">=", "<=") and float(number) > 0)
        check(f"{k.name} is a floor without a goal", (k.goal is None) == k.name.startswith("floor."))
        check(f"{k.name} is described", k.what and k.against and k.unit and k.missing)


def a_key_without_a_measurement_is_skipped_with_a_reason():
    for r in measuring.measure(Quiet(), []):
        row = r.as_json()
        check(f"{r.key.name}: {row}", set(row) == SHAPE and row["ratio"] is None and row["why_skipped"])


def a_key_that_lacks_its_needs_is_skipped_for_them():
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


def a_void_round_costs_its_own_time_alone():
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
    """It exits 0 then, and has a sentence instead of numbers: that is told, and the round is
    made up for."""
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
    """Its -n counts the bytes of as many streams as there are, all together. Fewer bytes are
    over before its windows are open."""
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
    """The better peer's run is void in the first round: the other one is not taken for the best.
    One that fails by itself is named."""
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
    """A bench whose sides say at once what they are to say: two peers, of which one has a
    program that is not here. `twice`: the share of the file that comes twice when the other one
    is killed; of ours a tenth does."""
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
    """The results of keys of a transfer, or, the last of them being `.kill`, of what it does
    after a fault."""
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
    """All of them write to one file, and a failure says how its program ended and what that said
    last, and nobody else did."""
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


def a_kill_is_held_against_a_twentieth_at_least():
    """The bytes that a path holds come twice, whichever end is killed, so a peer that repeats less has had luck."""
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


run_all(each_key_has_one_row, a_key_without_a_measurement_is_skipped_with_a_reason,
        a_key_that_lacks_its_needs_is_skipped_for_them, ratios_are_medians_the_right_way_up,
        a_failure_is_told_and_ends_nothing, rounds_add_up_over_runs_that_are_ended,
        a_round_in_which_a_peer_was_void_does_not_count,
        a_peer_that_is_not_here_is_named_and_not_compared,
        a_peer_that_fails_is_told_by_its_own_words,
        a_kill_is_held_against_a_twentieth_at_least,
        a_round_in_which_iperf3_failed_does_not_count, iperf3_sends_the_bytes_that_ours_does,
        arenas_have_room_for_the_file_of_data, a_void_round_costs_its_own_time_alone)
