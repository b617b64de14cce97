#!/usr/bin/env python3
"""operations.py ROOT: each counter and each log event that a person may have to act on has a
line in docs/operations.md, and the page speaks of no other; README speaks of each counter."""
import os
import re
import sys

FOLDERS = ("base", "wan", "intra", "gateway/arena", "gateway/catalog", "gateway/config", "gateway/store", "gateway/daemon")
LEVELS = r"TB_LOG_(?:ERROR|WARN)"
EVENT = re.compile(r'"([a-z]+\.[a-z_]+)"')
CALL = re.compile(r'\b(?:tb_log|tb_log_begin|tb_link_log|tb_worker_refusal_log)\(((?:"[^"]*"|[^;"])*?)\);', re.S)


def events(root):
    """event -> file, of those at error or warn; of those whose level is chosen at run time as well"""
    found = {}
    for folder in FOLDERS:
        for path, _, files in os.walk(os.path.join(root, folder)):
            for name in sorted(files):
                if not name.endswith(".c"):
                    continue
                with open(os.path.join(path, name), encoding="utf-8") as text:
                    for call in CALL.findall(text.read()):
                        at_info = re.search(r"TB_LOG_(INFO|DEBUG)\s*,", call) and not re.search(LEVELS, call)
                        for event in EVENT.findall(call) if not at_info else ():
                            found.setdefault(event, os.path.relpath(os.path.join(path, name), root))
    return found


def counters(root):
    with open(os.path.join(root, "gateway/daemon/counters.h"), encoding="utf-8") as text:
        table = re.search(r"#define TB_COUNTERS\(X\)(.*?)(?:\n[^\n]*[^\\]\n)", text.read(), re.S).group(0)
    return set(re.findall(r"X\((\w+)\)", table)) - {"X"}


def main():
    root = sys.argv[1]
    with open(os.path.join(root, "docs/operations.md"), encoding="utf-8") as text:
        page = text.read()
    with open(os.path.join(root, "README.md"), encoding="utf-8") as text:
        front = set(re.findall(r"`(\w+)`", text.read()))
    named = set(re.findall(r"`([\w.]+)`", "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
    wanted = events(root)
    wrong = [f"docs/operations.md: no line for event {event} of {path}" for event, path in sorted(wanted.items()) if event not in named]
    wrong += [f"docs/operations.md: no line for counter {name}" for name in sorted(counters(root) - named)]
    wrong += [f"README.md: no word on counter {name}" for name in sorted(counters(root) - front)]
    wrong += [f"docs/operations.md: {name} is neither a counter nor an event of ours"
              for name in sorted(named - set(wanted) - counters(root) - {"links_strangers_refused"})]
    print("\n".join(wrong) if wrong else f"{len(wanted)} events, {len(counters(root))} counters")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
