#!/usr/bin/env python3
"""A trainer and eight rollouts at two sites, end to end: each version in each rollout is the
trainer's, bit for bit, and what it took is printed.

Tensors stand in host memory or, by torch, on a GPU. Rollouts follow by copy, staged on the GPU
(`gpu`, with --memory cuda alone), by switch and by patch, over shm and over tcp. Each process
compares its tensors where they stand. The last version is published in place.

Covers: python/tombolo/sessions.py python/tombolo/library.py
"""

import argparse
import ctypes
import importlib.util
import json
import math
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
import harness  # noqa: E402
from harness import Failed, Worker, expect, wait_for  # noqa: E402

os.environ.setdefault("TOMBOLO_LIBRARY", str(harness.BUILD.resolve() / "intra/client/libtombolo.so"))
MODEL = "policy"
WIDTHS = {"host": 1024, "cuda": 4096}
ROLLOUTS = (("east", "copy", "shm"), ("east", "gpu", "shm"), ("east", "switch", "tcp"), ("east", "patch", "tcp"),
            ("west", "copy", "tcp"), ("west", "gpu", "tcp"), ("west", "switch", "shm"), ("west", "patch", "shm"))
MIB = 1 << 20


class TensorWorker(Worker):
    """It starts here and opens its session later, so that all of them load torch at once."""

    PROGRAM = (sys.executable, HERE / "tensor_worker.py")

    def __init__(self, lab, name, memory):
        self.PROGRAM = (*type(self).PROGRAM, memory)
        super().__init__(lab, name)

    def begin(self, site, **options):
        self.site = site
        self.send("open", gateway=f"unix:{site.session_socket}", name=self.name, **options)

    def done(self):
        reply = self.receive()
        expect(f"{self.name} ({reply.get('error')})", reply["status"], "ok")
        return reply


def rows_of(count, width):
    """Names and shapes of about `count` bytes: square matrices, each with a norm, and an odd one."""
    layers = max(1, count // (2 * width * (width + 1)))
    rows = [("odd", (3, 33))]
    for i in range(layers):
        rows += [(f"layers.{i}.norm", (width,)), (f"layers.{i}.weight", (width, width))]
    return rows


def bytes_of(rows):
    return sum(2 * math.prod(shape) for _, shape in rows)


def all_at_once(workers, order, **fields):
    for w in workers:
        w.send(order, **fields)
    for w in workers:
        w.done()


def how_it_came(site, name, number):
    """Transport and its reason, as the site shows the rollout in the version's chain."""
    def member():
        chains = [c for c in site.control("chains", model=MODEL)["chains"] if c["number"] == number]
        return next((m for c in chains for m in c["members"] if m["name"] == name and m["transport"] != "none"), None)
    m = wait_for(f"{site.name} shows how {name} read version {number}", member)
    return {"transport": m["transport"], "why": m["transport_why"]}


class Run:
    """One run: the sites, the trainer, the rollouts, and what was measured."""

    def __init__(self, lab, options):
        self.options = options
        self.rows = rows_of(options.bytes, options.width or WIDTHS[options.memory])
        self.bytes = bytes_of(self.rows)
        east, west, _ = lab.east_west(through_link=False, arena_mib=3 * self.bytes // MIB + 64)
        self.sites = {"east": east, "west": west}
        self.trainer = TensorWorker(lab, "trainer", options.memory)
        self.rollouts = [(TensorWorker(lab, ".".join(row), options.memory), *row) for row in ROLLOUTS
                         if row[1] != "gpu" or options.memory == "cuda"]
        self.published, self.followed = [], []
        harness.up(east, west)

    def begin(self):
        """All sessions are open, all tensors registered, all rollouts subscribed."""
        self.trainer.begin(self.sites["east"])
        for w, site, _, transport in self.rollouts:
            w.begin(self.sites[site], **({"host": f"host-{w.name}", "no_verbs": True} if transport == "tcp" else {}))
        self.device = self.trainer.done()["device"]
        for w, *_ in self.rollouts:
            w.done()
        self.floors = self.trainer.ok("floors")["floors"]
        self.trainer.ok("run", model=MODEL, key="end-to-end")
        self.trainer.ok("register", rows=self.rows)
        self.trainer.ok("prepare", model=MODEL)
        for w, _, mode, _ in self.rollouts:
            w.send("register", rows=self.rows, sets=2 if mode == "switch" else 1)
        for w, *_ in self.rollouts:
            w.done()
        for w, _, mode, _ in self.rollouts:
            w.ok("subscribe", model=MODEL, group=w.name, mode=mode)
        self.trainer.ok("make", number=1)
        time.sleep(self.options.settle_s) # what is measured is a version that comes some time after registration

    def publish(self, number, in_place):
        if number > 1:
            self.trainer.ok("make", number=number)
        began = time.monotonic()
        got = self.trainer.ok("publish", model=MODEL, number=number, in_place=in_place)
        for site in self.sites.values():
            site.wait_holds(got["uid"])
        self.published.append({"number": number, "in_place": in_place, **got, "held_by_all_s": time.monotonic() - began})
        return got["uid"]

    def follow(self, number, uid, before):
        """One rollout after the other, so that each has the device and the bus to itself."""
        for w, site, mode, transport in self.rollouts:
            staged = w.ok("stage", uid=uid)
            came = how_it_came(self.sites[site], w.name, number)
            expect(f"{w.name}: its transport ({came['why']})", came["transport"] in {"shm": ("shm", "cuda"), "tcp": ("tcp",)}[transport], True)
            if mode == "gpu":
                expect(f"{w.name}: the version is on the GPU", staged["gpu_bytes"] > 0, True)
            active = w.ok("activate", uid=uid)
            expect(f"{w.name}: elements that differ in version {number}", w.ok("compare", number=number, buffer=active["buffer"])["differ"], 0)
            if before:
                w.ok("release", uid=before)
            self.followed.append({"number": number, "rollout": w.name, "site": site, "mode": mode, **came,
                                  "stage_s": staged.pop("seconds"), **staged, **active})

    def versions(self):
        before = None
        last = self.options.versions + 1
        for number in range(1, last + 1):
            uid = self.publish(number, in_place=number == last)
            self.follow(number, uid, before)
            before = uid

    def result(self):
        return {"memory": self.options.memory, "device": self.device, "bytes": self.bytes, "tensors": len(self.rows),
                "floors_gb_per_s": self.floors, "keys": self.keys(), "published": self.published, "followed": self.followed}

    def keys(self):
        """Ratios of the first to the steady, and of the steady to a floor of this device."""
        shadows = [p for p in self.published if not p["in_place"]]
        steady = shadows[-1]["hold_ms"]
        keys = {"publish.hold.first": self.key(max(p["hold_ms"] for p in shadows[:2]) / 1e3, steady / 1e3, "floor.to_host")}
        for w, *_ in self.rollouts:
            first, *_, steady = [f for f in self.followed if f["rollout"] == w.name and f["number"] <= self.options.versions]
            if steady["read_bytes"] > 0.9 * first["read_bytes"]: # else the steady one reads deltas alone
                keys[f"stage.first.{w.name}"] = self.key(first["stage_s"], steady["stage_s"], "floor.to_device")
        return keys

    def key(self, first_s, steady_s, floor):
        name = floor if floor in self.floors else "floor.in_memory"
        gb_per_s = self.bytes / steady_s / 1e9
        return {"first_s": first_s, "steady_s": steady_s, "first_to_steady": first_s / steady_s, "steady_gb_per_s": gb_per_s,
                "against": name, "steady_to_floor": gb_per_s / self.floors[name]}


def print_result(result):
    print(f"{result['device']}: {result['bytes'] / 1e9:.2f} GB in {result['tensors']} tensors; "
          + ", ".join(f"{k} {v:.1f} GB/s" for k, v in result["floors_gb_per_s"].items()))
    for p in result["published"]:
        print(f"version {p['number']}, {'in place' if p['in_place'] else 'shadow'}: hold {p['hold_ms']:.1f} ms, "
              f"published in {p['seconds']:.2f} s, held by both sites after {p['held_by_all_s']:.2f} s")
    print(f"{'version':<8}{'rollout':<18}{'stage s':>9}{'GB/s':>8}{'stall ms':>10}{'read MB':>9}{'on GPU MB':>11}{'patched MB':>12}  transport")
    for f in result["followed"]:
        print(f"{f['number']:<8}{f['rollout']:<18}{f['stage_s']:>9.3f}{result['bytes'] / f['stage_s'] / 1e9:>8.2f}{f['stall_ms']:>10.1f}"
              f"{f['read_bytes'] / 1e6:>9.0f}{f['gpu_bytes'] / 1e6:>11.0f}{f['patched_bytes'] / 1e6:>12.0f}  {f['transport']}: {f['why']}")
    for name, k in result["keys"].items():
        print(f"{name:<28} first {k['first_s']:.3f} s, steady {k['steady_s']:.3f} s: {k['first_to_steady']:.2f}; "
              f"steady {k['steady_gb_per_s']:.2f} GB/s, {k['steady_to_floor']:.3f} of {k['against']}")


def size(text):
    units = {"M": 10**6, "G": 10**9}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


def options_of(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Exit codes: 0 every byte was right, 1 failed, 77 this machine cannot run it.\n"
                                            "Example: TB_BUILD_DIR=build/release tests/gpu/end_to_end.py --memory cuda --bytes 2G")
    parser.add_argument("--memory", choices=("host", "cuda"), default="host", help="where tensors stand (default host)")
    parser.add_argument("--bytes", type=size, default=64 * 10**6, help="of a version: N, NM or NG (default 64M)")
    parser.add_argument("--versions", type=int, default=3, help="published in shadow mode; one more is published in place (default 3)")
    parser.add_argument("--width", type=int, help="rows and columns of a matrix (default 1024 on the host, 4096 on a GPU)")
    parser.add_argument("--settle-s", type=float, default=0, help="seconds between registration and the first version (default 0)")
    parser.add_argument("--json", type=pathlib.Path, help="write the result here too")
    options = parser.parse_args(argv)
    if options.versions < 2 or options.bytes < 1:
        parser.error("--versions is 2 or more, --bytes 1 or more")
    return options


def why_not(memory):
    """Why tensors cannot stand there; None: they can."""
    if memory == "host":
        return None
    if importlib.util.find_spec("torch") is None:
        return "no torch"
    try:
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError as error:
        return f"no CUDA driver: {error}"
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the CUDA driver has no device"
    return None


def main(argv):
    options = options_of(argv)
    why = why_not(options.memory)
    if why is not None:
        print(f"skipped: {why}")
        return 77

    @harness.scenario
    def end_to_end(lab):
        run = Run(lab, options)
        run.begin()
        run.versions()
        result = run.result()
        print_result(result)
        if options.json is not None:
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return harness.run("end_to_end")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
