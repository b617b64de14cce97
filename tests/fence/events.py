#!/usr/bin/env python3
"""events.py ROOT: tests/fault gives a catalog every event that there is: each function of a header in gateway/catalog that may
change one is called there. Records and checks are no events."""
import glob
import os
import re
import sys

HEADERS = "gateway/catalog/*.h"
NO_EVENTS = ("catalog_check.h", "records.h")
TESTS = ("tests/fault/catalog_variants.c", "tests/fault/catalog_events.c")  # the second drains


def main():
    root = sys.argv[1]
    events = set()
    for header in glob.glob(os.path.join(root, HEADERS)):
        if os.path.basename(header) in NO_EVENTS:
            continue
        with open(header, encoding="utf-8") as text:
            events |= set(re.findall(r"\b(tb_catalog_\w+)\(struct tb_catalog \*", text.read()))
    given = set()
    for name in TESTS:
        with open(os.path.join(root, name), encoding="utf-8") as text:
            given |= set(re.findall(r"\b(tb_catalog_\w+)\(", text.read()))
    missing = sorted(events - given)
    print("\n".join(f"{TESTS[0]}: {name} of {HEADERS} is never called" for name in missing) if missing else f"{len(events)} events")
    return 1 if missing or not events else 0


if __name__ == "__main__":
    sys.exit(main())
