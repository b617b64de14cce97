#!/usr/bin/env python3
"""test_lines.py ROOT: no test file has over 600 lines.

Those that have more are in tests/fence/test_lines_left with their lines, which may only fall;
--update writes them as they are now, where they fell."""
import os
import sys

import c_text

LEFT, MOST = "tests/fence/test_lines_left", 600


def main():
    root, update = sys.argv[1], "--update" in sys.argv
    count = {name: c_text.read(root, name).count("\n")
             for name in c_text.files(root, ["tests"], (".c", ".h", ".py", ".sh"))
             if not name.startswith("tests/fuzz/corpus/")}
    now = {name: lines for name, lines in count.items() if lines > MOST}
    before = now
    if os.path.exists(os.path.join(root, LEFT)):
        listed = [line.split() for line in c_text.read(root, LEFT).splitlines()]
        before = {name: int(lines) for name, lines in listed}
    wrong = [f"{name}: {lines} lines, and {before.get(name, MOST)} at most: split it by claim"
             for name, lines in sorted(now.items()) if lines > before.get(name, MOST)]
    if update and not wrong:
        with open(os.path.join(root, LEFT), "w", encoding="utf-8") as out:
            out.writelines(f"{name} {lines}\n" for name, lines in sorted(now.items()))
    elif not wrong:
        wrong = [f"{name}: {count.get(name, 0)} lines by now: tests/fence/test_lines.py . --update"
                 for name, lines in sorted(before.items()) if now.get(name, 0) < lines]
    print("\n".join(wrong) if wrong else f"{len(count)} files, {len(now)} of them over {MOST} lines")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
