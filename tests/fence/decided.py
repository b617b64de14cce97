#!/usr/bin/env python3
"""decided.py ROOT: the table "Where is it decided?" of docs/architecture.md is true: each file is
there and defines each function that its row names before the first file of the row."""
import os
import re
import sys

import c_text

PAGE, HEADING = "docs/architecture.md", "Where is it decided?"
NAME = re.compile(r"`(\w+)`")
FILE = re.compile(r"`([\w/]+\.c)`")
ROWS_MIN = 10


def rows(page):
    """(question, functions, file)"""
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    for line in section.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and FILE.fullmatch(cells[2]):
            own = cells[1].split(";")[0]  # behind it stands what others have
            yield cells[0], NAME.findall(own), FILE.fullmatch(cells[2]).group(1)


def main():
    root = sys.argv[1]
    page = c_text.read(root, PAGE)
    found = list(rows(page)) if HEADING in page else []
    wrong = [] if len(found) >= ROWS_MIN else [f"{PAGE}: {HEADING}: {len(found)} rows, and {ROWS_MIN} questions have to be answered"]
    for question, functions, name in found:
        if not os.path.exists(os.path.join(root, name)):
            wrong.append(f"{PAGE}: {question} {name} is not there")
            continue
        there = {f.name for f in c_text.functions(c_text.code_of(c_text.read(root, name)))}
        wrong += [f"{PAGE}: {question} {name} has no {f}" for f in functions if f not in there]
        wrong += [] if functions else [f"{PAGE}: {question} no function is named"]
    print("\n".join(wrong) if wrong else f"{len(found)} questions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
