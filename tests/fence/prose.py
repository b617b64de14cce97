#!/usr/bin/env python3
"""prose.py ROOT: what a program can check of plain English in sources (C, and Python's
docstrings and comments):

    wide       a line of nothing but comment has over 100 columns, or any line over 110; in Markdown a
               line of text that has over 100 and could be broken
    long       a paragraph of a comment has over 6 lines
    free       a sentence begins with a free "who" or "what": the subject is no thing that has a name

Files that are not there yet are in tests/fence/prose_left with their numbers. A number may only
fall: with --update it is written as it is now, where it fell."""
import collections
import os
import re
import subprocess
import sys

import c_text

FOLDERS = ("base", "wan", "intra", "gateway", "include", "sim", "bench", "tests", "python")
LEFT = "tests/fence/prose_left"
COMMENT_COLUMNS, COLUMNS, PARAGRAPH = 100, 110, 6
WRITTEN = ("docs/benchmarks.md", "docs/config.md")  # by bench/run and by tombolo config explain
FREE = re.compile(r"(?:^|[.;:!]\s+)(?:Who|What|Whoever|Whatever|Whose)\b(?![^.?!]*\?)")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def is_table(line):
    """A line that is laid out by hand: a table, a list, an example."""
    return line.startswith(("  ", "|", "- ")) or re.search(r"\S {3,}\S", line) is not None


def paragraphs(comment):
    """Of a comment's text, without what is laid out by hand."""
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.strip("/*").split("\n")]
    gathered = []
    for line in lines:
        if line and not is_table(line):
            gathered.append(line.strip())
        elif gathered:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def numbers(text):
    found = collections.Counter()
    code = c_text.code_of(text).split("\n")
    for line, rest in zip(text.split("\n"), code):
        width = len(line.expandtabs(4))
        if width > COLUMNS or (width > COMMENT_COLUMNS and line.strip() and not rest.strip()):
            found["wide"] += 1
    for comment in c_text.TEXT.findall(text):
        if not comment.startswith("/*"):
            continue
        for paragraph in paragraphs(comment):
            found["long"] += len(paragraph) > PARAGRAPH
            found["free"] += len(FREE.findall(" ".join(paragraph)))
    return found


def wide_pages(root):
    """{page: its lines of text that are too wide}. Tables, code and headings are as wide as they are;
    pages that a program writes are that program's."""
    found = {}
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True)
    for page in listed.stdout.split():
        if page in WRITTEN or not os.path.exists(os.path.join(root, page)):
            continue
        code = False
        for line in c_text.read(root, page).split("\n"):
            code ^= line.lstrip().startswith("```")
            text = not code and not line.startswith(("|", "#", "<", ">", "    "))
            if text and len(line) > COMMENT_COLUMNS and " " in line.strip()[2:COMMENT_COLUMNS]:
                found[page] = found.get(page, 0) + 1
    return found


def left(root):
    with open(os.path.join(root, LEFT), encoding="utf-8") as text:
        return {(path, rule): int(count) for path, rule, count in (line.split() for line in text)}


def main():
    root = sys.argv[1]
    update = "--update" in sys.argv
    before = left(root) if os.path.exists(os.path.join(root, LEFT)) else None
    now = {}
    for name in c_text.product_files(root, FOLDERS):
        for rule, count in numbers(c_text.read(root, name)).items():
            if count:
                now[name, rule] = count
    now.update({(page, "wide"): count for page, count in wide_pages(root).items()})
    wrong = []
    if before is not None:
        wrong = [f"{path}: {rule}: {count}, and {before.get((path, rule), 0)} before" for (path, rule), count in sorted(now.items())
                 if count > before.get((path, rule), 0)]
        if not update:
            wrong += [f"{path}: {rule}: {now.get((path, rule), 0)} are left: write so with tests/fence/prose.py . --update"
                      for (path, rule), count in sorted(before.items()) if now.get((path, rule), 0) < count]
    if update and not wrong:
        with open(os.path.join(root, LEFT), "w", encoding="utf-8") as text:
            text.writelines(f"{path} {rule} {count}\n" for (path, rule), count in sorted(now.items()))
    print("\n".join(wrong) if wrong else ", ".join(f"{rule}: {sum(c for (_, r), c in now.items() if r == rule)} left" for rule in ("wide", "long", "free")))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
