"""The page and the figures of bench/run say what was measured: medians, the best of theirs, ages.

Covers: bench/report.py bench/floors.py bench/fleet_keys.py bench/measuring.py
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import types

from bench_quiet import ROOT, Quiet, check, run_all
import keys
import measuring
import report


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


def a_floor_chooses_its_way_at_the_size_that_is_measured():
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


def ages_are_areas():
    """A rollout that never switches ages from one period on; one that switches at once at every
    step has half a period."""
    check("never", measuring.mean_age([], 2, 10) == 20)
    check("at once", measuring.mean_age([(0, 0), (10, 1)], 2, 10) == 5)
    check("late", abs(measuring.mean_age([(5, 0), (15, 1)], 2, 10) - 10) < 1e-9)


run_all(writing_some_rows_keeps_the_others, fleets_are_timed_event_by_event,
        a_floor_chooses_its_way_at_the_size_that_is_measured,
        the_pump_over_a_wan_is_the_best_of_blocking_and_batched,
        the_best_of_theirs_is_the_best_over_the_rounds, the_elastic_figure_has_hold_and_age,
        a_figure_is_of_its_table, the_page_says_what_the_keys_mean, ages_are_areas)
