#!/usr/bin/env python3
"""results.py FOLDER [--part]: reads what ctest wrote and what tests/run recorded there; prints
each failure and each skip with its reason, that RDMA was not tested where it was not (with
--part, some tests were asked for, it does not), then the sum. Exits 0 when something passed and
nothing failed."""
import glob
import os
import sys
import xml.etree.ElementTree as tree

# Each skips where it has no device for RDMA; in this order their reasons are told.
OVER_VERBS = ("vm.faults_that_rdma_alone_can_have", "intra.verbs")


def reason_of(case):
    """The last line of a skipped test, which by our custom is why."""
    text = (case.findtext("system-out") or "").strip().splitlines()
    lines = [line for line in text if "skip" in line.lower()] or text
    return lines[-1].strip() if lines else "no reason given"


def of_ctest(path):
    stage = os.path.basename(path)[:-len(".xml")]
    for case in tree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        if case.find("failure") is not None or case.get("status") == "fail":
            yield "failed", stage, name, ""
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            yield "skipped", stage, name, reason_of(case)
        else:
            yield "passed", stage, name, ""


def of_records(path):
    with open(path, encoding="utf-8") as records:
        for line in records:
            kind, stage, name, reason = (line.rstrip("\n").split("\t") + [""])[:4]
            yield kind, stage, name, reason


def read(folder):
    """All results below the folder: (passed, failed or skipped; stage; name; reason)."""
    results = []
    for path in sorted(glob.glob(os.path.join(folder, "*.xml"))):
        results += of_ctest(path)
    records = os.path.join(folder, "records.tsv")
    if os.path.exists(records):
        results += of_records(records)
    return results


def count(results):
    return {kind: sum(r[0] == kind for r in results) for kind in ("passed", "failed", "skipped")}


def why_no_rdma(results):
    """Why nothing went by RDMA: no device here and no VM lab. Empty: something did, or failed to."""
    over_verbs = {name: (kind, reason) for kind, stage, name, reason in results if name in OVER_VERBS}
    if any(kind != "skipped" for kind, _ in over_verbs.values()):
        return ""
    return next((reason for name in OVER_VERBS for _, reason in [over_verbs.get(name, ("", ""))] if reason),
                "no test over verbs ran; tests/run --stage vm")


def main():
    results = read(sys.argv[1])
    for kind, stage, name, reason in results:
        if kind != "passed":
            print(f"{kind}: {stage} {name}" + (f": {reason}" if reason else ""))
    reason = why_no_rdma(results)
    if reason and sys.argv[2:] != ["--part"]:
        print(f"RDMA was not tested: {reason}")
    n = count(results)
    print(f"{n['passed']} passed, {n['failed']} failed, {n['skipped']} skipped")
    return 1 if n["failed"] or not n["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
