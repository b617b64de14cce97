#!/usr/bin/env python3
"""schemas.py ROOT: each command that has --json has a schema in deploy/schemas, each schema is of a
command, and each is of the form that readers rely on: JSON that says of which command it is, with
the failure that any command may answer. tests/system/test_schemas.py holds real answers to them."""
import json
import pathlib
import re
import sys

NO_JSON = {"help", "demo"}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def commands(root):
    """The names in the table, and in the headers that have rows of it (TB_CLI_..._ROWS)."""
    text = (root / "gateway/cli/commands.c").read_text()
    table = text[text.index("static const struct tb_cli_command commands[] = {"):]
    names = re.findall(r'^    \{"([a-z]+(?: [a-z]+)?)", "', table, re.M)
    for path in sorted((root / "gateway/cli").rglob("*_rows.h")):
        rows = path.read_text()
        if re.search(r"#define TB_CLI_\w+_ROWS", rows):
            names += re.findall(r'^ +\{"([a-z]+(?: [a-z]+)?)",\s', rows, re.M)
    return names


def complaints(root):
    folder = root / "deploy/schemas"
    wanted = {name.replace(" ", "-") for name in commands(root) if name not in NO_JSON}
    there = {path.name.removesuffix(".schema.json"): path for path in folder.glob("*.schema.json")}
    yield from (f"{name}: deploy/schemas has none for it" for name in sorted(wanted - there.keys()))
    yield from (f"{there[name]}: there is no such command with --json" for name in sorted(there.keys() - wanted))
    yield from (f"{path}: not a schema's name" for path in sorted(folder.iterdir()) if path not in there.values() and path.name != "README.md")
    for name, path in sorted(there.items()):
        schema = json.loads(path.read_text())
        if schema.get("$schema") != DRAFT or name.replace("-", " ") not in schema.get("title", "") or "failure" not in schema.get("$defs", {}):
            yield f"{path}: it lacks $schema, a title with the command's name, or $defs.failure"


def main():
    wrong = list(complaints(pathlib.Path(sys.argv[1])))
    print("\n".join(wrong) if wrong else "each command that has --json has a schema")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
