#!/usr/bin/env python3
"""prose.py ROOT: what a program can check of plain English:

    wide       a line of nothing but comment has over 100 columns, or a line of C over 110; in Markdown
               a line of text that has over 100 and could be broken
    long       a paragraph of a C comment has over 6 lines
    free       a sentence has a free "who" or "what", so its subject is no thing that has a name:
               it begins with one, also behind "P6:" or "The twin:"; it has "whoever", or a "who" behind
               a preposition or a semicolon; the name of a test begins with who_ or what_

Texts are comments (C, Python, scripts, CMake, YAML), strings of the product, docstrings, Markdown, and
the heads of planted mistakes. A question may begin with "what". So may a heading.

Files that are not there yet are in tests/fence/prose_left with their numbers. A number may only
fall: with --update it is written as it is now, where it fell."""
import ast
import collections
import io
import os
import re
import sys
import tokenize

import c_text

PRODUCT = ("base", "wan", "intra", "gateway", "include")
LEFT = "tests/fence/prose_left"
COMMENT_COLUMNS, COLUMNS, PARAGRAPH = 100, 110, 6
WRITTEN = ("docs/benchmarks.md",)  # its tables by bench/run
# A cache of tests/frameworks/environment is named after the bytes of those lists of packages.
NO_TEXT = re.compile(r"tests/fuzz/corpus/|tests/fence/prose\.py$|deploy/man/|tests/frameworks/\w+\.txt|.*\.(svg|abi|json)$")
FREE = re.compile(r"(?:^|[.;:!]\s+|\*\*\s+)(?:Who|What|Whoever|Whatever|Whose|Whom)\b(?![^.?!]*\?)|"
                  r"\b(?:P\d+|[Tt]wins?|Mistake): (?:who|what|whose|whom)\b(?![^.?!]*\?)|"
                  r"\b[Ww]ho(?:m|se)?ever\b|; who\b|"
                  r"\b(?:to|from|by|of|for|at|with|than|until|like) who\b")
TEST = re.compile(r"^(?:(?:static )?(?:void|int|bool) |def )(?:who|what|whose)_\w+\((?:void \*\*|_?lab\b)", re.M)


def is_table(line):
    """A line that is laid out by hand: a table, a list, an example."""
    return line.startswith(("  ", "|", "- ")) or re.search(r"\S {3,}\S", line) is not None


def gathered(lines):
    """Paragraphs of lines: lists of them. What is laid out by hand is none."""
    paragraph = []
    for line in [*lines, ""]:
        if line and not is_table(line):
            paragraph.append(line.strip())
        elif paragraph:
            yield paragraph
            paragraph = []


def comment_paragraphs(comment):
    return gathered([re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.strip("/*").split("\n")])


def c_strings(text):
    """Literals, joined where the compiler joins them."""
    joined, end = "", 0
    for found in c_text.TEXT.finditer(text):
        if not found.group(0).startswith('"'):
            continue
        if text[end:found.start()].strip():
            yield joined
            joined = ""
        joined, end = joined + found.group(0)[1:-1], found.end()
    yield joined


def c_numbers(name, text):
    found = collections.Counter()
    for line, rest in zip(text.split("\n"), c_text.code_of(text).split("\n")):
        width = len(line.expandtabs(4))
        found["wide"] += width > COLUMNS or (width > COMMENT_COLUMNS and bool(line.strip()) and not rest.strip())
    for comment in c_text.TEXT.findall(text):
        if comment.startswith("/*"):
            for paragraph in comment_paragraphs(comment):
                found["long"] += len(paragraph) > PARAGRAPH
                found["free"] += len(FREE.findall(" ".join(paragraph)))
    if name.startswith(PRODUCT):
        found["free"] += sum(len(FREE.findall(string)) for string in c_strings(text))
    return found


def python_texts(text):
    """Docstrings, a paragraph each, and comments that stand below each other."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (" ".join(paragraph.split()) for paragraph in (ast.get_docstring(node) or "").split("\n\n"))
    comments, last = "", None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] - 1 != last:
                yield comments
                comments = ""
            comments, last = f"{comments} {token.string.lstrip('# ')}".strip(), token.start[0]
    yield comments


def hash_texts(text):
    """Comments of scripts: those below each other are one text."""
    lines = [re.sub(r"^\s*#!?\s?", "", line) if re.match(r"\s*#", line) else "" for line in text.split("\n")]
    return (" ".join(paragraph) for paragraph in gathered(lines))


def markdown_texts(text):
    """Paragraphs, items of lists and cells of tables; no headings and no code."""
    code, paragraph = False, []
    for line in [*text.split("\n"), ""]:
        code ^= line.lstrip().startswith("```")
        item = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line)
        if code or not line.strip() or item != line or line.startswith(("|", "#", "    ", "```")):
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith("|"):
            yield from (cell.strip() for cell in line.split("|"))
        elif not code and line.strip() and not line.startswith(("#", "    ", "```")):
            paragraph.append(item.strip())
    yield " ".join(paragraph)


def wide_of(page, text):
    """Lines of Markdown that are too wide. Tables, code and headings are as wide as they are."""
    count, code = 0, False
    for line in [] if page in WRITTEN + ("docs/config.md",) else text.split("\n"):
        code ^= line.lstrip().startswith("```")
        is_text = not code and not line.startswith(("|", "#", "<", ">", "    "))
        count += is_text and len(line) > COMMENT_COLUMNS and " " in line.strip()[2:COMMENT_COLUMNS]
    return count


def wide_comments(text):
    return sum(len(line) > COMMENT_COLUMNS and line.lstrip().startswith("# ") for line in text.split("\n"))


def numbers(name, text):
    """Of one file, whatever it is written in."""
    if name.endswith((".c", ".h", ".cu")):
        return c_numbers(name, text) + collections.Counter(free=len(TEST.findall(text)))
    if name.endswith(".md"):
        return collections.Counter(wide=wide_of(name, text), free=sum(len(FREE.findall(t)) for t in markdown_texts(text)))
    if name.endswith(".patch"):
        return collections.Counter(free=sum(len(FREE.findall(line)) for line in text.split("\n---")[0].split("\n")))
    python = name.endswith(".py") or re.match(r"#!.*python3", text) is not None
    texts = python_texts(text) if python else hash_texts(text)
    return collections.Counter(wide=wide_comments(text), free=sum(len(FREE.findall(t)) for t in texts) + len(TEST.findall(text)))


def read_all(root):
    """(name, text) of each text file that is ours. Pictures, recorded bytes and the like are none."""
    for name in c_text.files(root, ["."], ""):
        path = os.path.join(root, name)
        if not NO_TEXT.match(name) and not os.path.islink(path):
            with open(path, "rb") as file:
                content = file.read()
            if b"\0" not in content:
                yield name, content.decode("utf-8", "replace")


def left(root):
    with open(os.path.join(root, LEFT), encoding="utf-8") as text:
        return {(path, rule): int(count) for path, rule, count in (line.split() for line in text)}


def main():
    root, update = sys.argv[1], "--update" in sys.argv
    before = left(root)
    now = {(name, rule): count for name, text in read_all(root) for rule, count in numbers(name, text).items() if count}
    wrong = [f"{path}: {rule}: {count}, and {before.get((path, rule), 0)} before" for (path, rule), count in sorted(now.items())
             if count > before.get((path, rule), 0)]
    if update and not wrong:
        with open(os.path.join(root, LEFT), "w", encoding="utf-8") as text:
            text.writelines(f"{path} {rule} {count}\n" for (path, rule), count in sorted(now.items()))
    elif not update:
        wrong += [f"{path}: {rule}: {now.get((path, rule), 0)} are left: write so with tests/fence/prose.py . --update"
                  for (path, rule), count in sorted(before.items()) if now.get((path, rule), 0) < count]
    sums = (f"{rule}: {sum(count for (_, r), count in now.items() if r == rule)} left" for rule in ("wide", "long", "free"))
    print("\n".join(wrong) if wrong else ", ".join(sums))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
