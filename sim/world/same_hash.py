#!/usr/bin/env python3
"""same_hash.py: builds the world with gcc and clang, unoptimised and with -O2, and sees that its seeds give one trace hash.

A trace that differs between compilers depends on something that is no seed: an order of evaluation, an address, a padding
byte, memory that nobody wrote. By default the sources of sim/world are built in the ways that the build folder (gcc -O2 in preset
dev) is not, and linked to its libraries; the shipped sources only in the way that is furthest from it (clang -O0), which takes seconds;
--all builds them in each way.

Covers: sim/world/fault_disk.c sim/world/fault_link.c sim/world/fault_process.c
Covers: sim/world/world_anchors.c sim/world/world_arena.c sim/world/world_chan.c
Covers: sim/world/world_check.c sim/world/world_client.c sim/world/world_fabric.c
Covers: sim/world/world_faults.c sim/world/world_gateway.c sim/world/world_jobs.c
Covers: sim/world/world_main.c sim/world/world_outside.c sim/world/world_pipe.c
Covers: sim/world/world_process.c sim/world/world_run.c sim/world/world_shelves.c
Covers: sim/world/world_shrink.c sim/world/world_store.c sim/world/world_threads.c
Covers: sim/world/world_trainer.c sim/world/world_trial.c sim/world/world_uv.c
Covers: sim/world/world_versions.c sim/world/world_worker.c"""
import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

WAYS = [(compiler, level) for compiler in ("gcc", "clang") for level in ("-O0", "-O2")]
FURTHEST = ("clang", "-O0")
JOBS = os.cpu_count() or 1
SKIPPED = 77


class Failed(Exception):
    """The output of a command that should not have failed."""


def call(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **more)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:6])} ...: {done.stderr.strip()[-1500:]}")
    return done.stdout


def flags_of(words):
    """The options that decide how a source is read, and for which processor; not how it is optimised or warned about."""
    kept = []
    for i, word in enumerate(words):
        if word.startswith(("-I", "-D", "-std", "-m")):
            kept.append(word)
        elif word in ("-isystem", "-imultiarch", "-include"):
            kept += [word, words[i + 1]]
    return kept


def read_commands(build):
    """[(source, flags)] of all that goes into the world, and the words of its link."""
    lines = call(["ninja", "-C", build, "-t", "commands", "tombolo-world"]).splitlines()
    sources, link = [], None
    for line in lines:
        words = shlex.split(line.replace("&&", " ; "))
        source = words[words.index("-c") + 1] if "-c" in words else ""
        if source.endswith(".c"):
            sources.append((source, flags_of(words)))
        elif any(w.endswith("/tombolo-world") for w in words) and "-o" in words:
            link = words
    if link is None or not sources:
        raise Failed(f"{build} has no rule for tombolo-world")
    return sources, link


def compile_all(build, sources, way, folder):
    compiler, level = way
    launcher = ["ccache"] if shutil.which("ccache") else []

    def one(job):
        source, flags = job
        target = os.path.join(folder, source.strip("/").replace("/", "_") + ".o")
        call(launcher + [compiler, level, "-w", *flags, "-c", source, "-o", target], cwd=build)
        return target
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(one, sources))


def link_one(build, sources, link, way, folder, everything):
    world = [s for s in sources if "/sim/world/" in s[0]]
    objects = compile_all(build, world, way, folder)
    libraries = link[link.index("-o") + 2:]
    libraries = [w for w in libraries if w.startswith(("-l", "/", "-Wl,-rpath")) or w.endswith((".a", ".so"))]
    if everything:
        shipped = compile_all(build, [s for s in sources if s not in world], way, folder)
        archive = os.path.join(folder, "libshipped.a")
        call(["ar", "rcs", archive, *shipped], cwd=build)
        libraries = [archive] + [w for w in libraries if not w.endswith(".a")]
    wraps = [w for w in link if w.startswith("-Wl,--wrap")]
    program = os.path.join(folder, "tombolo-world")
    call([way[0], *objects, *wraps, "-o", program, *libraries], cwd=build)
    return program


def hash_of(program, seeds):
    return json.loads(call([program, "--seeds", str(seeds), "--jobs", "0", "--json"]))["hash"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\nCovers:")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: sim/world/same_hash.py build/dev --seeds 40\n"
                                            "Exit codes: 0 one hash, 1 several, 2 something could not be built, 77 no clang.")
    parser.add_argument("build", help="a configured build folder (Ninja) in which tombolo-world is built")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--all", action="store_true", help="build the shipped sources in each way too")
    parser.add_argument("--json", action="store_true", help="one object on stdout and nothing else")
    options = parser.parse_args()
    missing = [tool for tool in ("gcc", "clang", "ninja") if shutil.which(tool) is None]
    if missing:
        print(f"same_hash.py: skipped, there is no {missing[0]}", file=sys.stderr)
        return SKIPPED
    build = os.path.realpath(options.build)
    hashes = {}
    try:
        sources, link = read_commands(build)
        program = os.path.join(build, "sim", "world", "tombolo-world")
        if not options.all:  # preset dev is gcc with -O2
            hashes["as built"] = hash_of(program, options.seeds)
        for way in WAYS if options.all else [w for w in WAYS if w != ("gcc", "-O2")]:
            folder = os.path.join(build, "sim", "world", "same", "".join(way))
            os.makedirs(folder, exist_ok=True)
            everything = options.all or way == FURTHEST
            program = link_one(build, sources, link, way, folder, everything)
            hashes[" ".join(way) + (", shipped sources too" if everything else "")] = hash_of(program, options.seeds)
    except Failed as e:
        print(f"same_hash.py: {e}", file=sys.stderr)
        return 2
    same = len(set(hashes.values())) == 1
    if options.json:
        print(json.dumps({"schema": 1, "same": same, "hashes": hashes}))
    else:
        for way, value in hashes.items():
            print(f"{way:30} {value}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
