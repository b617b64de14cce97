"""Safetensors files into tensors that stand already.

Covers: python/tombolo/files.py
"""

import array
import json
import sys
import threading

import packages  # noqa: F401: finds the package
from harness import Failed, expect, main, scenario

import tombolo


def write(path, tensors, change=lambda header: None, cut=0):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    change(header)
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + b"".join(content for _, _, content in tensors.values())
    path.write_bytes(whole[:len(whole) - cut])
    return path


def refused(call, *words):
    try:
        call()
    except ValueError as error:
        for word in words:
            expect(f"{word!r} in {str(error)!r}", word in str(error), True)
        return
    raise Failed("nothing was raised")


@scenario
def files_come_into_the_tensors_own_memory(lab):
    """P1: two files, tensors that are larger than one read, one that is empty. A tensor that a file has and `into` does not is passed
    over."""
    content = {name: bytes((seed + i * 7) % 251 for i in range(4099)) * 5003 for seed, name in enumerate("ab")}
    paths = [write(lab.dir / "1.safetensors", {"a": ("U8", [4099, 5003], content["a"]), "none": ("F32", [0, 4], b"")}),
             write(lab.dir / "2.safetensors", {"b": ("U8", [len(content["b"])], content["b"]), "other": ("U8", [3], b"abc")})]
    for threads in (None, 1):
        a, b = array.array("B", bytes(len(content["a"]))), array.array("B", bytes(len(content["b"])))
        tombolo.load_files(paths, {"a": ("U8", (4099, 5003), a), "b": b, "none": ("F32", (0, 4), bytearray())}, threads=threads)
        expect("bytes", (a.tobytes() == content["a"], b.tobytes() == content["b"]), (True, True))


@scenario
def a_file_that_does_not_fit_writes_nothing(lab):
    """P10: another shape, a missing name, and files that are none are refused before a byte is written."""
    target = array.array("B", b"before")
    good = write(lab.dir / "good.safetensors", {"w": ("U8", [6], b"behind")})
    refused(lambda: tombolo.load_files(good, {"w": ("U8", (2, 3), target)}), "U8[6]", "U8[2, 3]")
    refused(lambda: tombolo.load_files(good, {"w": target, "v": bytearray(3)}), "no file has v")
    refused(lambda: tombolo.load_files([good, good], {"w": target}), "w is in two files", "good.safetensors")
    parts = memoryview(target)
    refused(lambda: tombolo.load_files(good, {"w": target, "part": parts[:3]}), "no file has part")
    refused(lambda: tombolo.load_files(write(lab.dir / "cut.safetensors", {"w": ("U8", [6], b"behind")}, cut=1), {"w": target}), "does not fit")
    for name, change in (("far", {"data_offsets": [1 << 40, (1 << 40) + 6]}), ("swapped", {"data_offsets": [6, 0]}), ("size", {"data_offsets": [0, 5]}),
                         ("negative", {"data_offsets": [-6, 0]}), ("three", {"data_offsets": [0, 3, 6]}), ("shape", {"shape": ["x"]}),
                         ("dtype", {"dtype": "NO"})):
        path = write(lab.dir / f"{name}.safetensors", {"w": ("U8", [6], b"behind")}, change=lambda header, change=change: header["w"].update(change))
        refused(lambda path=path: tombolo.load_files(path, {"w": target}))
    for name, raw in (("short", b"1234567"), ("long", (1 << 60).to_bytes(8, "little") + b"{}"), ("list", (2).to_bytes(8, "little") + b"[]"),
                      ("text", (2).to_bytes(8, "little") + b"{x")):
        (lab.dir / name).write_bytes(raw)
        refused(lambda name=name: tombolo.load_files(lab.dir / name, {"w": target}), name)
    expect("nothing was written", target.tobytes(), b"before")
    tombolo.load_files(good, {"w": target})
    tombolo.load_files(good, {"w": target, "tied": memoryview(target)})
    expect("then all of it, and of tied tensors one name is enough", target.tobytes(), b"behind")
    starts, reads = threading.Thread.start, []

    def start(thread):
        if reads:
            raise RuntimeError("can't start new thread")
        reads.append(thread)
        starts(thread)
    threading.Thread.start = start
    many = write(lab.dir / "many.safetensors", {"a": ("U8", [40 << 20], bytes(40 << 20))})
    try:
        tombolo.load_files(many, {"a": bytearray(40 << 20)}, threads=3)
        raise Failed("nothing was raised")
    except RuntimeError:
        expect("a thread that began has ended", (len(reads), reads[0].is_alive()), (1, False))
    finally:
        threading.Thread.start = starts


if __name__ == "__main__":
    sys.exit(main())
