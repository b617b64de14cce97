"""Weights by the codecs of base/: bytes, and speed on one core.

Of the nine versions in TB_WEIGHTS_DIR (v0000.safetensors and on), else of made ones with their statistics; all bf16. Sizes are of
the files as they are, speeds of each tiled to 1 GiB; a round of the sparse codecs' speed is one of the eight steps."""

import json
import os
import pathlib
import struct

import harness
import lab as sites
from measuring import Skip, measurement

STEPS = 8
TILED = 1 << 30
MADE = 32 << 20


def versions(bench):
    """(nine files, bytes of their headers)"""
    real = sorted(pathlib.Path(os.environ.get("TB_WEIGHTS_DIR", "/nowhere")).glob("v*.safetensors"))
    files = real[:STEPS + 1] if len(real) > STEPS else bench.versions(MADE, STEPS + 1)
    bench.say(f"  {'TB_WEIGHTS_DIR' if files[0] in real else 'made weights'}: {len(files)} versions of {files[0].stat().st_size} bytes")
    return files, header_bytes(files[0])


def header_bytes(path):
    with open(path, "rb") as f:
        (count,) = struct.unpack("<Q", f.read(8))
        dtypes = {t["dtype"] for name, t in json.loads(f.read(count)).items() if name != "__metadata__"}
    if dtypes != {"BF16"}:
        raise Skip(f"{path.name} has tensors of {', '.join(sorted(dtypes))}; the keys are of bf16 alone")
    return 8 + count


def step(bench, files, skip, i, size=0):
    argv = [bench.codec_speed, "--base", files[i], "--version", files[i + 1], "--skip", skip, "--bytes", size]
    return sites.tool(argv)


@measurement("codec.classes", "codec.gaps")
def bytes_a_change(bench):
    """The same in every round: one is enough."""
    files, skip = versions(bench)
    steps = [step(bench, files, skip, i) for i in range(STEPS)]
    changed = sum(s["changed"] for s in steps)
    yield {f"codec.{c}": (sum(s[c]["coded"] for s in steps) / changed, 1.0) for c in ("classes", "gaps")}


@measurement("codec.classes.encode", "codec.classes.decode", "codec.gaps.encode", "codec.gaps.decode")
def speed_of_deltas(bench):
    files, skip = versions(bench)
    for i in range(STEPS) if bench.rounds > 1 else (STEPS // 2,):
        s = step(bench, files, skip, i, TILED)
        yield {f"codec.{c}.{way}": (s["bytes"] / s[c][f"{way}_s"] / 1e9, s["bytes"] / s["scan_s"] / 1e9)
               for c in ("classes", "gaps") for way in ("encode", "decode")}


@measurement("codec.full", "codec.full.encode", "codec.full.decode", memory=True)
def full_copies(bench):
    path = bench.data or versions(bench)[0][0]
    skip = header_bytes(path)
    once = sites.tool([bench.codec_speed, "--version", path, "--skip", skip])
    harness.expect("bytes of a version", once["bytes"] > 0, True)
    for _ in range(bench.rounds):
        s = sites.tool([bench.codec_speed, "--version", path, "--skip", skip, "--bytes", TILED])
        copied = s["bytes"] / s["memcpy_s"] / 1e9
        yield {"codec.full": (once["bytes"], once["full"]["coded"]),
               **{f"codec.full.{way}": (s["bytes"] / s["full"][f"{way}_s"] / 1e9, copied) for way in ("encode", "decode")}}
