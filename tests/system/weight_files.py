"""Safetensors files of a system test: made, read, written and damaged."""

import json
import struct
import subprocess

from waiting import BUILD

MAKE_WEIGHTS = BUILD / "sim/tombolo-make-weights"


def safetensors_table(path):
    """[{name, dtype, shape, offset, bytes}] with offsets into the file."""
    with open(path, "rb") as f:
        (header_bytes,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(header_bytes))
    rows = []
    for name, t in header.items():
        if name == "__metadata__":
            continue
        first, end = t["data_offsets"]
        rows.append({"name": name, "dtype": t["dtype"], "shape": t["shape"],
                     "offset": 8 + header_bytes + first, "bytes": end - first})
    return rows


def halves(rows):
    """Two lists of tensors of about equal bytes, as two trainer ranks hold them."""
    total, first, second = 0, [], []
    for row in sorted(rows, key=lambda r: -r["bytes"]):
        (first if total <= 0 else second).append(row)
        total += row["bytes"] if first and first[-1] is row else -row["bytes"]
    return first, second


def flip_in_file(arena, weights, row):
    """Inverts a byte in the middle of a tensor where it stands in an arena file; False when it
    is not there."""
    data = weights.read_bytes()[row["offset"]:row["offset"] + row["bytes"]]
    with open(arena, "r+b") as f:
        at = f.read().find(data)
        if at < 0:
            return False
        f.seek(at + row["bytes"] // 2)
        f.write(bytes([data[row["bytes"] // 2] ^ 0xFF]))
    return True


def safetensors(path, tensors, padding=0):
    """Writes {name: (dtype, shape, bytes)} in order."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * padding
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(d for _, _, d in tensors.values()))


def version_folder(into, number, run=1):
    """Where `tombolo subscribe --into` puts that version."""
    return into / f"{run:06}-{number:019}"


def made(lab, size, count, *more):
    """Paths of versions of that size; `more` for the program that makes them."""
    folder = lab.dir / f"made-{size}"
    subprocess.run([MAKE_WEIGHTS, "--out", folder, "--bytes", size, "--versions", str(count), "--seed", "7", *more], check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.safetensors"))
