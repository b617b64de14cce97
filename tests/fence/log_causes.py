#!/usr/bin/env python3
"""log_causes.py ROOT: log_causes says of each log event of a gateway which party can cause it. A stranger's
word is never an error, and each line goes through base/log.c, which limits the lines of each party."""
import os
import re
import sys

FOLDERS = ("base", "wan", "intra", "gateway/arena", "gateway/catalog", "gateway/config", "gateway/store", "gateway/daemon", "gateway/disk")
NOT_A_GATEWAYS = ("intra/client", "base/log.c", "base/assert.c")
CAUSES = {"local", "worker", "peer", "stranger"}
EVENT = re.compile(r'"([a-z]+\.[a-z_]+|plan|start|stop)"')
CALL = re.compile(r'\b(?:tb_log|tb_log_begin|tb_link_log|tb_worker_refusal_log|arena_log|log_line)\(((?:"[^"]*"|[^;"])*?)\);', re.S)
RAW = re.compile(r"\b(?:fprintf\(stderr|vfprintf\(stderr|fputs\([^;]*stderr|perror\(|dprintf\(|syslog\()")
MAIN = "gateway/daemon/main.c"  # speaks to its starter, before there is a party


def sources(root):
    for folder in FOLDERS:
        for path, _, files in os.walk(os.path.join(root, folder)):
            for name in sorted(files):
                file = os.path.relpath(os.path.join(path, name), root)
                if name.endswith(".c") and not file.startswith(NOT_A_GATEWAYS):
                    with open(os.path.join(root, file), encoding="utf-8") as text:
                        yield file, text.read()


def main():
    root = sys.argv[1]
    wrong, found = [], {}
    for file, text in sources(root):
        for call in CALL.findall(text):
            for event in EVENT.findall(call):
                errors = found.setdefault(event, set())
                if "TB_LOG_ERROR" in call:
                    errors.add(file)
        if file not in (MAIN, "base/fault.c"):  # the latter is compiled in for tests alone
            wrong += [f"{file}: {raw} writes past the limits of base/log.c" for raw in RAW.findall(text)]
    causes = {}
    with open(os.path.join(root, "tests/fence/log_causes"), encoding="utf-8") as text:
        for line in text:
            if line.strip() and not line.startswith("#"):
                event, *by = line.split()
                causes[event] = set(by)
                if not by or set(by) - CAUSES or ("local" in by and len(by) > 1):
                    wrong.append(f"tests/fence/log_causes: {event}: local, or some of worker, peer, stranger")
    wrong += [f"tests/fence/log_causes: {event} has no line: who can cause it?" for event in sorted(set(found) - set(causes))]
    wrong += [f"tests/fence/log_causes: {event} is logged nowhere" for event in sorted(set(causes) - set(found))]
    wrong += [f"{file}: {event} is an error, and a stranger causes it"
              for event, files in sorted(found.items()) if "stranger" in causes.get(event, ()) for file in sorted(files)]
    if not any("stranger" in by for by in causes.values()):
        wrong.append("tests/fence/log_causes names no stranger")
    print("\n".join(wrong) if wrong else f"{len(found)} events, {sum('local' not in by for by in causes.values())} of parties")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
