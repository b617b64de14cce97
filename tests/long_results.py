#!/usr/bin/env python3
"""long_results.py: what each stage of `tests/run --long` came to; one file a stage in
build/long/, and of the stages that take hours one a part (a fuzz target, a test labelled
`long`): each says at which commit it ran.

  passed STAGE                 exits 0 when the stage passed at this very commit, and says so
  keep STAGE|PART SECONDS      counts build/results and keeps the sum as the last result of it
  due SECONDS PART...          prints the parts that did not pass at this commit for so long; never run and oldest first
  fuzzed TARGET FUZZ_S passed|failed [REASON]    keeps a fuzz target's last result
  sum STAGE...                 prints the failures, the skips and the sum of these stages
  write                        puts one line a stage and part into docs/benchmarks.md"""
import datetime
import json
import os
import re
import subprocess
import sys

import results

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
KEPT = os.path.join(ROOT, "build", "long")
PAGE = os.path.join(ROOT, "docs", "benchmarks.md")
BEGIN, END = "<!-- tests/run --long --write: what stands between these marks is replaced -->", "<!-- tests/run --long: end -->"
STAGES = ("mutants", "lint", "dev", "vm", "asan", "tsan", "world")
TARGET = re.compile(r"fuzz_[A-Za-z0-9_]+")
PART = re.compile(TARGET.pattern + r"|dev [A-Za-z0-9_.]+")
FUZZ_S = 600


def commit():
    """The commit's short name, with + when files differ from it; docs do not count, for --write
    changes them."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".", ":!docs") else "")


def kept(stage):
    path = os.path.join(KEPT, stage + ".json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def at_this_commit(entry):
    here = commit()
    return entry is not None and not entry["failed"] and entry["commit"] == here and not here.endswith("+")


def passed(stage):
    last = kept(stage)
    if not at_this_commit(last):
        return 1
    print(f"passed at this commit on {last['date']}: {last['passed']} passed, {last['skipped']} skipped; --again runs it again")
    return 0


def due(seconds, *parts):
    last = {p: kept(p) for p in parts}
    left = [p for p in parts if not (at_this_commit(last[p]) and last[p]["seconds"] >= int(seconds))]
    print("\n".join(sorted(left, key=lambda p: (last[p] or {}).get("time", 0))))
    return 0


def store(stage, seconds, found):
    now = datetime.datetime.now()
    entry = {"stage": stage, "commit": commit(), "date": now.date().isoformat(), "time": now.timestamp(), "seconds": int(seconds),
             "load": round(os.getloadavg()[2], 1), **results.count(found), "told": [r for r in found if r[0] != "passed"]}
    os.makedirs(KEPT, exist_ok=True)
    with open(os.path.join(KEPT, stage + ".json"), "w", encoding="utf-8") as f:
        json.dump(entry, f)
    return 0


def keep(stage, seconds):
    # A stage without a preset of its own (world), or a part of dev, ran dev's.
    found = [r for r in results.read(os.path.join(ROOT, "build", "results")) if r[1] in (stage, "dev" if stage == "world" else stage.split()[0])]
    return store(stage, seconds, found)


def fuzzed(target, fuzz_s, verdict, reason=""):
    return store(target, fuzz_s, [(verdict, "fuzz", target, reason)])


def parts_kept(stage=""):
    names = os.listdir(KEPT) if os.path.isdir(KEPT) else []
    return sorted(n[:-len(".json")] for n in names if PART.fullmatch(n[:-len(".json")]) and n.startswith(stage))


def entries_of(stage):
    """The stage's, or its parts' and what kept them all from running now."""
    if stage != "fuzz":
        return [kept(stage), *map(kept, parts_kept(stage + " "))]
    here = [r for r in results.read(os.path.join(ROOT, "build", "results")) if r[1] == "fuzz" and not TARGET.fullmatch(r[2])]
    return [*map(kept, parts_kept("fuzz_")), {**results.count(here), "told": here}]


def total(stages):
    n = {"passed": 0, "failed": 0, "skipped": 0}
    for entry in filter(None, (e for stage in stages for e in entries_of(stage))):
        for kind, stage, name, reason in entry["told"]:
            print(f"{kind}: {stage} {name}" + (f": {reason}" if reason else ""))
        for kind in n:
            n[kind] += entry[kind]
    print(f"{n['passed']} passed, {n['failed']} failed, {n['skipped']} skipped")
    return 1 if n["failed"] or not n["passed"] else 0


def row(entry):
    note = "; ".join(f"{r[0]}: {r[2]}" + (f" ({r[3]})" if r[3] else "") for r in entry["told"][:4])
    if TARGET.fullmatch(entry["stage"]) and entry["seconds"] < FUZZ_S:
        note = f"not {FUZZ_S} s: no long result" + ("; " + note if note else "")
    return (f"|{entry['stage']}|{entry['commit']}|{entry['date']}|{entry['passed']}|{entry['failed']}|{entry['skipped']}|"
            f"{entry['seconds']}|{entry['load']}|{note}|")


def write():
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    if BEGIN not in page or END not in page:
        sys.exit(f"{PAGE}: the marks of the table are gone: {BEGIN}")
    before, rest = page.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    rows = {line.split("|")[1]: line for line in old.splitlines() if line.startswith("|")}
    rows.update({entry["stage"]: row(entry) for entry in filter(None, map(kept, [*STAGES, *parts_kept()]))})
    table = ["|stage|commit|date|passed|failed|skipped|seconds|load|note|", "|---|---|---|---|---|---|---|---|---|"]
    table += [rows[stage] for stage in [*STAGES, *sorted(filter(PART.fullmatch, rows))] if stage in rows]
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + "\n\n" + "\n".join(table) + "\n\n" + END + after)
    return 0


def main():
    verbs = {"passed": passed, "keep": keep, "due": due, "fuzzed": fuzzed, "write": write, "sum": lambda *stages: total(stages)}
    if len(sys.argv) < 2 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    return verbs[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
