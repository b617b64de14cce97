#!/usr/bin/env python3
"""kernel_facts.py IMAGE [--check]: what the assembler says of each kernel in the library's image.

The build leaves what ptxas printed beside the image. This prints it as the table that stands in docs/benchmarks.md: registers of a
thread, shared memory of a block, bytes that are spilled to memory, and how many blocks, and warps of all that fit, a multiprocessor
works on at a time. With --check a spill is a failure: each is a trip to memory in an inner loop.

Covers: intra/cuda/kernels.cu

Exit codes: 0 none spills, 1 one does, or the image's facts are not there, 2 the command line."""
import pathlib
import re
import sys

THREADS = 256  # of a block: TB_KERNEL_THREADS
# Shared memory of a multiprocessor by architecture, of which each block takes 1 KiB for the driver,
# and its warps.
SHARED = {"sm_80": 164, "sm_86": 100, "sm_89": 100, "sm_90": 228, "sm_100": 228, "sm_120": 100}
WARPS = {"sm_86": 48, "sm_89": 48, "sm_120": 48}


def facts(text):
    """[(arch, kernel, registers, shared, spilled)]"""
    found, arch, kernel, spilled = [], "", "", 0
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            kernel, arch, spilled = m[1], m[2], 0
        elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled += int(m[1]) + int(m[2])
            if found and not kernel:  # of a function that the kernel before it calls
                found[-1][4] += spilled
                spilled = 0
        elif m := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found.append([arch, kernel, int(m[1]), int(shared[1]) if shared else 0, spilled])
            kernel, spilled = "", 0
    return found


def blocks(arch, registers, shared):
    """As many as a multiprocessor's 65,536 registers, its shared memory and its warps allow."""
    by_registers = 65536 // (-(-registers // 8) * 8 * THREADS)
    by_shared = SHARED.get(arch, 100) * 1024 // (shared + 1024)
    return min(by_registers, by_shared, WARPS.get(arch, 64) * 32 // THREADS)


def main(argv):
    if len(argv) not in (2, 3) or argv[2:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    image = pathlib.Path(argv[1])
    found = facts(pathlib.Path(f"{image}.facts").read_text())
    if not found:
        print(f"{image}.facts says nothing of any kernel")
        return 1
    print("| kernel | for | registers | shared memory | spilled | blocks (warps) of a multiprocessor |\n|---|---|---|---|---|---|")
    for arch, kernel, registers, shared, spilled in sorted(found, key=lambda f: (f[1], int(f[0][3:].rstrip("af")))):
        fit = blocks(arch, registers, shared)
        print(f"| `{kernel}` | {arch} | {registers} | {shared:,} bytes | {spilled} | {fit} ({fit * THREADS // 32}) |")
    print(f"\nThe image has {image.stat().st_size:,} bytes.")
    return 1 if len(argv) == 3 and any(f[4] for f in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
