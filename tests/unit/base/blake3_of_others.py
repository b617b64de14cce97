"""The proof digest is that of PyPI's `blake3`, of random bytes of random lengths: by each set of instructions, and in
pieces. In the environment `vllm` of tests/frameworks, which has that package; skipped where it is not made.

Covers: base/proof/blake3.c base/proof/blake3_portable.c base/proof/blake3_avx2.c
Covers: base/proof/blake3_avx512.c
"""

import os
import pathlib
import random
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
LEAF, MOST = 1024, 3 << 20
SEED = int.from_bytes(os.urandom(4), "little")


def lengths(chance):
    """At the ends of blocks, of leaves and of subtrees, and anywhere, up to more than a chunk."""
    ends = [n * unit + off for unit in (64, LEAF) for n in (0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 64) for off in (-1, 0, 1)]
    return [n for n in ends if n >= 0] + [chance.randrange(20 * LEAF) for _ in range(40)] + [chance.randrange(MOST) for _ in range(8)]


def main():
    if os.environ.get("TB_ENVIRONMENT") != "vllm":
        done = subprocess.run([TESTS / "frameworks/environment", "vllm"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr.strip())
            return 77
        os.environ["TB_ENVIRONMENT"] = "vllm"
        os.execv(done.stdout.strip(), [done.stdout.strip(), *sys.argv])
    from blake3 import blake3
    chance = random.Random(SEED)
    inputs = [chance.randbytes(n) for n in lengths(chance)]
    framed = b"".join(len(i).to_bytes(4, "little") + i for i in inputs)
    lines = subprocess.run([sys.argv[1]], input=framed, capture_output=True, check=True, timeout=120).stdout.decode().splitlines()
    wrong = [f"{len(i)} bytes: {line}, and {blake3(i).hexdigest()} is right"
             for i, line in zip(inputs, lines, strict=True) if set(line.split()) != {blake3(i).hexdigest()}]
    print(*wrong[:5], f"{len(inputs)} inputs of seed {SEED}, {len(wrong)} wrong", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
