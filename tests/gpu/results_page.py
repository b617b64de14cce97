#!/usr/bin/env python3
"""Puts the JSON of tests/gpu/run into docs/benchmarks.md, between two marks.

usage: tests/gpu/results_page.py FILE"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import report  # noqa: E402

PAGE = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- tests/gpu/results_page.py: what stands between these marks is replaced -->", "<!-- tests/gpu/results_page.py: end -->"


def table(headings, rows):
    lines = ["|" + "|".join(headings) + "|", "|" + "|".join("---" for _ in headings) + "|"]
    return lines + ["|" + "|".join(row) + "|" for row in rows]


def speed_lines(speed):
    rows = [(f"`{r['key']}`", f"{r['gb_per_s']:.4g}", f"{r['ratio']:.3f}", f"`{r['against']}`") for r in speed["rows"]]
    return [f"Versions of {speed['bytes'] / 1e9:.2f} GB, median of {speed['rounds']} rounds, digests by: {speed['digests']}.", "",
            *table(("key", "GB/s", "ratio", "against"), rows), ""]


def way_of(f, last):
    return "in place" if f["number"] == last else str(f["number"])


def row_of(name, followed):
    """Of one rollout, in the order of versions: the steady one is the last in shadow mode."""
    steady = followed[-2]
    return (f"`{name}`", *(f"{f['stage_s']:.3f}" for f in followed), f"{steady['stall_ms']:.1f}", f"{steady['read_bytes'] / 1e6:.0f}",
            f"{steady['transport']}: {steady['why']}")


def end_to_end_lines(result):
    last = result["published"][-1]["number"]
    held = [(way_of(p, last), f"{p['hold_ms']:.0f}", f"{p['held_by_all_s']:.2f}") for p in result["published"]]
    rows = [row_of(name, [f for f in result["followed"] if f["rollout"] == name])
            for name in dict.fromkeys(f["rollout"] for f in result["followed"])]
    ratios = [(f"`{name}`", f"{k['first_s']:.3f}", f"{k['steady_s']:.3f}", f"{k['first_to_steady']:.2f}", f"{k['steady_to_floor']:.3f}",
               f"`{k['against']}`") for name, k in result["keys"].items()]
    return [f"End to end: a trainer, rollouts at two sites, {result['bytes'] / 1e9:.2f} GB in {result['tensors']} tensors. Every byte was right.", "",
            *table(("version", "hold ms", "both sites hold it after s"), held), "",
            *table(("rollout", *(f"stage s, {row[0]}" for row in held), "steady stall ms", "steady read MB", "transport"), rows), "",
            *table(("key", "first s", "steady s", "first / steady", "steady / floor", "floor"), ratios), ""]


def section(result):
    """The marks and the text between them."""
    parts = result["parts"]
    lines = [BEGIN, "", f"{result['device']}; {result['machine']}; {result['date']}, commit {result['commit']}.", "",
             *table(("part", "result", "seconds", "why"), [(n, p["result"], f"{p['seconds']:.0f}", p["why"]) for n, p in parts.items()]), ""]
    if "json" in parts.get("speed", {}):
        lines += speed_lines(parts["speed"]["json"])
    if "json" in parts.get("end_to_end", {}):
        lines += end_to_end_lines(parts["end_to_end"]["json"])
    return "\n".join([*lines, END])


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    result = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(report.replace(page, BEGIN, END, lambda _: section(result)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
