#!/usr/bin/env python3
"""includes.py ROOT: who may include whom, and no cycle.

base <- cores <- shells <- gateway/daemon; wan and intra are strangers; nothing of the product
includes tests, sim or bench. A module that is not in the table may be included by nobody and may
include nothing but base: add it here, with a thought for the arrow."""
import os
import re
import sys

EVERYTHING = None
ALLOWED = {
    "include": set(),
    "base": {"include"},
    "base/net": {"include", "base"},
    "base/pki": {"include", "base", "base/net"},
    "wan": {"include", "base", "base/net"},
    "intra": {"include", "base", "base/net"},
    "gateway/catalog": {"include", "base", "intra/planner.h"},  # one core asks another: it keeps the plans
    "gateway/arena": {"include", "base"},
    "gateway/disk": {"include", "base", "base/net/secret_memory.h"},  # for keys
    "gateway/store": {"include", "base", "gateway/catalog/catalog.h", "gateway/catalog/models.h",
                      "gateway/catalog/version_state.h", "gateway/disk/disk_key.h", "gateway/disk/disk_seal.h"},  # what it keeps is the catalog's
    "gateway/config": {"include", "base", "base/net", "wan", "intra/session_msg.h", "gateway/arena", "gateway/disk", "gateway/store"},
    "gateway/sandbox": {"include", "base", "gateway/config"},  # paths of the configuration
    "gateway/daemon": {"include", "base", "base/net", "wan", "intra", "gateway/catalog", "gateway/arena", "gateway/disk",
                       "gateway/store", "gateway/config", "gateway/sandbox"},
    # the command line is a client: it reads configurations like the daemon, and never touches
    # catalog or arena
    "gateway/cli": {"include", "base", "base/net", "base/pki", "intra", "gateway/config", "gateway/disk",
                    "gateway/daemon/rights.h"},  # pure: who may do what, by a configuration
    "gateway/web": {"include", "base", "gateway/cli", "gateway/sandbox"},
    "sim": {"include", "base", "base/net", "wan", "intra", "gateway/catalog", "gateway/arena", "gateway/disk", "gateway/cli"},
    "sim/world": EVERYTHING,  # it runs the whole gateway on a machine of its own
    "bench": EVERYTHING,
    "tests": EVERYTHING,
    "python": {"include"},
}
SOURCES = (".c", ".h", ".cc", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def module_of(path):
    if path.startswith("include/") or path.startswith("tombolo/"):
        return "include"
    parts = path.split("/")[:-1]
    for depth in (2, 1):
        name = "/".join(parts[:depth])
        if len(parts) >= depth and name in ALLOWED:
            return name
    return "/".join(parts)


def sources(root):
    for top in sorted({name.split("/")[0] for name in ALLOWED}):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def edges(root, path):
    """(line number, file included), for files of ours."""
    with open(os.path.join(root, path), encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            name = found.group(1)
            for candidate in (name, "include/" + name, os.path.join(os.path.dirname(path), name)):
                if os.path.exists(os.path.join(root, candidate)):
                    yield number, os.path.normpath(candidate)
                    break


def find_cycle(graph):
    """A list of nodes that leads back to its first, or None."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return None
        trail.append(node)
        for other in sorted(graph.get(node, ())):
            cycle = visit(other)
            if cycle:
                return cycle
        trail.pop()
        done.add(node)
        return None

    for node in sorted(graph):
        cycle = visit(node)
        if cycle:
            return cycle
    return None


def main():
    root = sys.argv[1]
    sys.setrecursionlimit(10000)
    wrong, files, modules = [], {}, {}
    for path in sources(root):
        mine = module_of(path)
        for number, other_path in edges(root, path):
            other = module_of(other_path)
            files.setdefault(path, set()).add(other_path)
            if mine == other:
                continue
            modules.setdefault(mine, set()).add(other)
            allowed = ALLOWED.get(mine, {"include", "base"})
            if allowed is not EVERYTHING and not allowed & {other, other_path}:
                wrong.append(f"{path}:{number}: {mine} may not include {other} ({other_path})")
    for graph, what in ((modules, "modules"), (files, "files")):
        cycle = find_cycle(graph)
        if cycle:
            wrong.append(f"a cycle of {what}: " + " -> ".join(cycle))
    print("\n".join(wrong) if wrong else f"{len(files)} files, {sum(map(len, modules.values()))} arrows between modules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
