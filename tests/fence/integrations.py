#!/usr/bin/env python3
"""integrations.py ROOT: each integration of the Python package is small, and its page says how
small.

An integration is all files of python/tombolo/integrations that begin with its name, as vllm.py
and vllm_loader.py do; SHARED are those that several use. Counted are lines that hold code: no
blank lines, comments or docstrings. A line of over 110 columns counts as several. --update
writes the numbers into the pages."""
import ast
import io
import os
import re
import sys
import tokenize

FOLDER, MOST, COLUMNS = "python/tombolo/integrations", 149, 110
SHARED = ("gate", "replica", "servers")
SAID = re.compile(r"(\d+) lines of code")
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text):
    said = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            said.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    held = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    return sum(-(-len(lines[number - 1]) // COLUMNS) for number in held - said)


def sizes(root):
    """{integration: lines}: of vllm.py and vllm_loader.py together, as "vllm"."""
    files = sorted(name[:-3] for name in os.listdir(os.path.join(root, FOLDER))
                   if name.endswith(".py") and name != "__init__.py")
    found = {}
    for name in files:
        first = next(other for other in files if name == other or name.startswith(f"{other}_"))
        with open(os.path.join(root, FOLDER, f"{name}.py"), encoding="utf-8") as file:
            found[first] = found.get(first, 0) + code_lines(file.read())
    return found


def page_of(root, name):
    return os.path.join(root, "docs/integrations", f"{name.replace('_', '-')}.md")


def main():
    root, wrong = sys.argv[1], []
    found = sizes(root)
    for name, lines in sorted(found.items()):
        if name in SHARED:
            continue
        if lines > MOST:
            wrong.append(f"{FOLDER}/{name}*.py: {lines} lines of code; at most {MOST}: move what is general")
        with open(page_of(root, name), encoding="utf-8") as file:
            page = file.read()
        said = SAID.search(page)
        if said is not None and "--update" in sys.argv:
            with open(page_of(root, name), "w", encoding="utf-8") as file:
                file.write(SAID.sub(f"{lines} lines of code", page))
        elif said is None or int(said[1]) != lines:
            wrong.append(f"{os.path.relpath(page_of(root, name), root)}: says {said[0] if said else 'nothing'}, "
                         f"and it has {lines} lines of code: tests/fence/integrations.py . --update")
    rows = (f"{name} {lines}" for name, lines in sorted(found.items()))
    print("\n".join(wrong) if wrong else ", ".join(rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
