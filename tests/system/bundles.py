"""Folders that `tombolo publish` reads and `tombolo subscribe` writes, and commands that are
refused."""

import filecmp
import json
import os

from harness import PATIENCE_S, Failed, expect, safetensors

DRY = "dry run, nothing changed: "


def hugging_face(folder, seed):
    """A folder with two safetensors files, their index, a config, an empty file and a folder
    inside."""
    folder.mkdir()
    a = {f"w.{i}": ("BF16", [300, 1000], bytes((i * 7 + seed + k) % 251 for k in range(1000)) * 600) for i in range(4)}
    b = {"odd": ("U8", [13], bytes(range(13))), "empty": ("F32", [0, 4], b""), "scalar": ("F64", [], bytes(8)),
         "v": ("F32", [100, 100], bytes([seed]) * 40000)}
    safetensors(folder / "model-00001-of-00002.safetensors", a, padding=3)
    safetensors(folder / "model-00002-of-00002.safetensors", b)
    index = {"metadata": {}, "weight_map": {**{n: "model-00001-of-00002.safetensors" for n in a},
                                            **{n: "model-00002-of-00002.safetensors" for n in b}}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text('{"seed": %d}\n' % seed)
    (folder / "empty.txt").write_text("")
    (folder / "extra").mkdir()
    (folder / "extra" / "tokenizer.model").write_bytes(os.urandom(1 << 20))
    return folder


def files_of(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.name not in ("STABLE", ".tombolo-lock"))


def expect_same(left, right):
    expect(f"files of {right}", files_of(right), files_of(left))
    for name in files_of(left):
        expect(f"{right / name} is byte-identical", filecmp.cmp(left / name, right / name, shallow=False), True)


def acts(site):
    """(action, object) of what operators did, the oldest first."""
    rows = (json.loads(line) for line in site.cli("audit", "--json").stdout.splitlines())
    return [(r["action"], r["object"]) for r in rows if r["origin"] == "control"]


def result(out):
    """The result that a command printed under --json: the last line, behind those of its progress."""
    return json.loads(out.splitlines()[-1])


def refused(site, code, words, *args):
    done = site.cli(*args, check=False)
    expect(f"exit code of tombolo {' '.join(map(str, args))} ({done.stderr.strip()})", done.returncode, code)
    if words not in done.stderr + done.stdout:
        raise Failed(f"tombolo {' '.join(map(str, args))} said {done.stderr!r}, not {words!r}")
    return done


def not_in_time(site, words, *args):
    """Exit code 4, and those words. The time is longer where a busy machine opens no session in it (3), or does not
    come to what the words are of."""
    seconds, code = 1, 3
    while (code == 3 or words not in done.stderr) and code in (3, 4) and seconds < PATIENCE_S:
        done = site.cli(*args, "--timeout", seconds, check=False)
        code, seconds = done.returncode, seconds * 2
    expect(f"exit code after {seconds // 2} s ({done.stderr.strip()})", (done.returncode, words in done.stderr), (4, True))
