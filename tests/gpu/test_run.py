#!/usr/bin/env python3
"""tests/gpu/run and tests/gpu/results_page.py without a GPU: programs that stand for those that need
one. The result of a part, its limit, the table, the JSON and the page are tried, and the reasons
for exit code 77. The parts end_to_end and vllm run as they are, and skip, as there is no driver.

Covers: tests/gpu/run tests/gpu/results_page.py
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
from harness import SOURCE, Skipped, expect, main, scenario  # noqa: E402

TELLS = 'if [ "$1" = --tell ]; then echo "Stand-in, driver 13.0"; exit 0; fi\n'
ROWS = {"device": "Stand-in", "driver": 13000, "bytes": 1 << 28, "rounds": 3, "digests": "gpu",
        "rows": [{"key": "floor.to_host", "gb_per_s": 55.4, "against": "floor.to_host", "ratio": 1},
                 {"key": "gpu.publish", "gb_per_s": 41.55, "against": "floor.to_host", "ratio": 0.75}]}
TORCH = "class cuda:\n    is_available = staticmethod(lambda: {})\n"


class Tree:
    """A copy of what the script reads, and a build folder of stand-ins."""

    def __init__(self, lab, sanitizer="exit 0"):
        self.root, self.build = lab.dir / "tree", lab.dir / "build"
        for part in ("tests/gpu", "tests/system", "bench", "docs", "sim", "python/tombolo"):
            shutil.copytree(SOURCE / part, self.root / part, ignore=shutil.ignore_patterns("__pycache__"))
        self.program("tests/gpu/test_gpu_device", TELLS + "echo all passed")
        self.program("bench/tombolo-gpu-speed", f"echo '{json.dumps(ROWS)}'")
        for name in ("intra/client/libtombolo.so", "gateway/daemon/tombolod", "gateway/cli/tombolo"):
            self.program(name, "exit 1")
        self.bin, self.stubs = lab.dir / "bin", lab.dir / "stubs"
        self.bin.mkdir()
        (self.bin / "compute-sanitizer").write_text(f"#!/bin/sh\n{sanitizer}\n")
        (self.bin / "compute-sanitizer").chmod(0o755)
        self.torch(True)

    def torch(self, finds_a_device):
        self.stubs.mkdir(exist_ok=True)
        (self.stubs / "torch.py").write_text(TORCH.format(finds_a_device))

    def program(self, name, text):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, *arguments, script="run"):
        env = {**os.environ, "TB_BUILD_DIR": str(self.build), "PATH": f"{self.bin}:{os.environ['PATH']}",
               "PYTHONPATH": str(self.stubs), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, self.root / "tests/gpu" / script, *map(str, arguments)], capture_output=True, text=True,
                              env=env, check=False)


def skip_beside_a_gpu():
    if pathlib.Path("/dev/nvidiactl").exists():
        raise Skipped("there is a GPU here: tests/gpu/run itself says more")


@scenario
def parts_come_to_one_table_and_one_json(lab):
    """P10: the table has each part that passed, that failed with its reason, or that is not here.
    The JSON goes into the page between the marks, and nothing else of the page changes."""
    skip_beside_a_gpu()
    tree, result = Tree(lab, sanitizer='case $* in *racecheck*--small) echo "hazard in k"; exit 9 ;; *--small) exit 0 ;; esac; exit 1'), lab.dir / "result.json"
    done = tree.run("--quick", "--json", result)
    expect(f"exit code ({done.stdout}{done.stderr})", done.returncode, 1)
    found = json.loads(result.read_text())
    expect("facts", (found["device"], found["quick"]), ("Stand-in, driver 13.0", True))
    expect("parts", {name: part["result"] for name, part in found["parts"].items()},
           {"device": "passed", "memcheck": "passed", "racecheck": "failed", "speed": "passed", "end_to_end": "skipped", "vllm": "skipped"})
    expect("why it failed", found["parts"]["racecheck"]["why"], "exit code 9: hazard in k")
    expect("why it was skipped", "no CUDA driver" in found["parts"]["end_to_end"]["why"] and "CUDA" in found["parts"]["vllm"]["why"], True)
    expect("rows", found["parts"]["speed"]["json"], ROWS)
    for words in ("Stand-in, driver 13.0, quick", "racecheck   failed", "gpu.publish", "0.750 of floor.to_host", "hazard in k"):
        expect(f"{words!r} in {done.stdout}", words in done.stdout, True)
    page = tree.root / "docs/benchmarks.md"
    before = page.read_text()
    done = tree.run(result, script="results_page.py")
    expect(f"the page ({done.stderr})", done.returncode, 0)
    after = page.read_text()
    for words in ("Stand-in, driver 13.0", "|racecheck|failed|", "|`gpu.publish`|41.55|0.750|`floor.to_host`|"):
        expect(f"{words!r} in the page", words in after, True)
    mark = "<!-- tests/gpu/results_page.py: "
    expect("the rest", [text.split(mark)[::2] for text in (after, before)], [[t.split(mark)[i] for i in (0, 2)] for t in (before, before)])


@scenario
def a_part_has_its_time_and_no_more(lab):
    """P6: a part that hangs ends with all that it started, and the others run. One part may be asked for, and no part that there
    is not."""
    skip_beside_a_gpu()
    tree, result, child = Tree(lab), lab.dir / "result.json", lab.dir / "child"
    tree.program("bench/tombolo-gpu-speed", f"sleep 1000 & echo $! >{child}; wait")
    script = tree.root / "tests/gpu/run"
    text = script.read_text()
    for limit_s in (1, 4, 16, 64): # a busy machine may need longer than the limit to start a shell
        script.write_text(text.replace('("speed", 15 if quick else 40,', f'("speed", {limit_s},'))
        done = tree.run("--only", "speed", "--only", "device", "--json", result)
        if child.exists() and child.read_text().strip():
            break
    parts = json.loads(result.read_text())["parts"]
    expect("exit code", done.returncode, 1)
    expect("parts", [(name, part["result"], part["why"]) for name, part in parts.items()],
           [("device", "passed", ""), ("speed", "failed", f"not done within {limit_s} s")])
    pid = child.read_text().strip()
    state = pathlib.Path(f"/proc/{pid}/stat")
    expect("its child has ended", not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z", True)
    done = tree.run("--only", "speeed")
    expect("a part that there is not", (done.returncode, "speeed" in done.stderr), (2, True))


@scenario
def a_machine_that_cannot_run_it_says_why(lab):
    """P10: 77, and the reason on the last line: nothing built, no GPU, a torch that finds none, no torch."""
    tree = Tree(lab)
    tree.torch(False)
    cases = [("torch finds no CUDA device", None), ("no GPU here: none", lambda: tree.program("tests/gpu/test_gpu_device", 'echo "skipped: no GPU here: none"; exit 77')),
             ("not built", lambda: shutil.rmtree(tree.build / "gateway"))]
    for words, change in cases:
        if change is not None:
            change()
        done = tree.run("--quick")
        last = (done.stdout.strip().splitlines() or [""])[-1]
        expect(f"{words} ({done.stdout}{done.stderr})", (done.returncode, last.startswith("tests/gpu/run: skipped: "), words in last), (77, True, True))
    expect("nothing was written", (tree.build / "gpu_results.json").exists(), False)


if __name__ == "__main__":
    sys.exit(main())
