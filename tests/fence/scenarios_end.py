#!/usr/bin/env python3
"""scenarios_end.py ROOT: a program of scenarios ends with the code of its scenario.

`main` of tests/system/harness.py returns that code. A program that calls it and drops the code
ends with 0, so its scenarios cannot fail."""
import re
import sys

import c_text

ENDS = re.compile(r"^    (?:sys\.exit\(main\(\)\)|raise SystemExit\(main\(\)\)|engines\.end\(main\))", re.M)


def main():
    root = sys.argv[1]
    programs = {name: c_text.read(root, name) for name in c_text.files(root, ["tests"], (".py",))}
    programs = {name: text for name, text in programs.items() if "\n@scenario" in text}
    wrong = [f"{name}: it drops what main() returns: end it with sys.exit(main())"
             for name, text in programs.items() if not ENDS.search(text)]
    print("\n".join(wrong) if wrong else f"{len(programs)} programs of scenarios end with their code")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
