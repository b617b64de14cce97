#!/usr/bin/env python3
"""reasons.py ROOT: a system test causes each reason of `tombolo lag`
(gateway/daemon/links/lag.h), and docs/lab-notes/lag-reasons.md names it.

A scenario declares its reasons: @scenario, then @causes("REASON", ...). tests/system/lagging.py
fails it where one of them was not said."""
import ast
import pathlib
import re
import sys

NOTES = "docs/lab-notes/lag-reasons.md"
ROW = re.compile(r"^\| `([\w-]+)` \| [^|]+ \| `(\w+\.py) (\w+)` \|$", re.M)


def reasons_of(root):
    header = (root / "gateway/daemon/links/lag.h").read_text().replace("\\\n", "")
    return re.findall(r'X\(TB_LAG_\w+, "([\w-]+)"', header)


def declared(root):
    """{(file, scenario): reasons}"""
    found = {}
    for path in sorted((root / "tests/system").glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef) or len(node.decorator_list) != 2:
                continue
            outer, inner = node.decorator_list
            if getattr(outer, "id", "") == "scenario" and getattr(getattr(inner, "func", None), "id", "") == "causes":
                found[path.name, node.name] = [ast.literal_eval(a) for a in inner.args]
    return found


def complaints(root):
    reasons, by = reasons_of(root), declared(root)
    caused = {reason for names in by.values() for reason in names}
    yield from (f"{r}: no system test causes it (@causes in tests/system)" for r in reasons if r not in caused)
    yield from (f"{r}: a test declares it, and gateway/daemon/links/lag.h has no such reason" for r in sorted(caused - set(reasons)))
    rows = ROW.findall((root / NOTES).read_text())
    if list(dict.fromkeys(row[0] for row in rows)) != reasons:
        yield f"{NOTES}: its table has other reasons than gateway/daemon/links/lag.h, or another order"
    yield from (f"{NOTES}: {file} {test} does not declare {r}" for r, file, test in rows if r not in by.get((file, test), []))


def main():
    wrong = list(complaints(pathlib.Path(sys.argv[1])))
    print("\n".join(wrong) if wrong else "a test causes each reason")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
