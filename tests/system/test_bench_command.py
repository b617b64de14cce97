"""bench/run as a command: JSON of one shape, exit codes, and nothing left of a bench that was
killed.

Covers: bench/run bench/without_avx512 bench/hop_floor.c sim/leavings.py
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from bench_quiet import ROOT, SHAPE, check, run_all
import leavings


def the_command_prints_one_object():
    env = dict(os.environ, TB_BUILD_DIR="/nowhere")  # so that nothing is measured
    run = [sys.executable, str(ROOT / "bench/run"), "--json", "--only"]
    done = subprocess.run([*run, "verbs"], env=env, capture_output=True, text=True, timeout=60)
    check(f"exit code: {done.stderr}", done.returncode == 0)
    rows = json.loads(done.stdout)
    check(f"keys: {rows}", set(rows) == {"verbs.hop"})
    check("shape", all(set(r) == SHAPE for r in rows.values()))
    done = subprocess.run([*run, "no.such.key"], env=env, capture_output=True, text=True, timeout=60)
    check("an unknown prefix is refused", done.returncode == 2 and done.stdout == "" and "no.such.key" in done.stderr)
    done = subprocess.run([*run, "verbs", "--data", __file__], env=env, capture_output=True, text=True, timeout=60)
    check(f"a file that is no safetensors file: {done.stderr}", done.returncode == 2 and "no safetensors file" in done.stderr)
    unbuilt = {k: v for k, v in os.environ.items() if k != "TB_BUILD_DIR"}
    done = subprocess.run([*run, "no.such.key"], env=dict(unbuilt, PATH="/nowhere"), capture_output=True, text=True, timeout=60)
    check("and before anything is built", done.returncode == 2)


JOINS = """#!{python}
import json, pathlib, sys
turn = pathlib.Path({turn!r})
turn.write_text(turn.read_text() + "x" if turn.exists() else "x")
if len(turn.read_text()) > {good}:
    sys.exit("no more")
print(json.dumps({{"cpu_s": {cpu_s}, "lease_s": 10}}))
"""


def the_exit_code_says_whether_the_bench_failed():
    """A goal that was missed and a key that is skipped are results; what failed ends no other
    key, and the exit code is 1."""
    with tempfile.TemporaryDirectory() as folder:
        joins, turn = pathlib.Path(folder) / "sim/fleet/tombolo-fleet-joins", pathlib.Path(folder) / "turn"
        joins.parent.mkdir(parents=True)

        def run(good, cpu_s, *words):
            joins.write_text(JOINS.format(python=sys.executable, turn=str(turn), good=good, cpu_s=cpu_s))
            joins.chmod(0o755)
            turn.unlink(missing_ok=True)
            done = subprocess.run([sys.executable, str(ROOT / "bench/run"), "--json", "--rounds", "2", *words], capture_output=True, text=True,
                                  env=dict(os.environ, TB_BUILD_DIR=folder, PATH=folder), timeout=60)
            rows = json.loads(done.stdout)
            check(f"shape: {rows}", all(set(r) == SHAPE for r in rows.values()))
            return done.returncode, {name: (r["ratio"], r["why_skipped"]) for name, r in rows.items()}
        joined = ("--only", "fleet.joins")
        check("reached", run(2, 5, *joined) == (0, {"fleet.joins": (0.5, None)}))
        check("missed", run(2, 20, *joined) == (0, {"fleet.joins": (2, None)}))
        code, rows = run(2, 5, *joined, "--only", "floor.aes")
        check(f"skipped: {code} {rows}", code == 0 and rows["fleet.joins"] == (0.5, None) and rows["floor.aes"][0] is None and
              "openssl is not installed" in rows["floor.aes"][1])
        check("failed in its second round", run(1, 5, *joined) == (1, {"fleet.joins": (0.5, None)}))
        code, rows = run(2, 5, "--only", "fleet")  # of the others there is no program
        failed = [rows.pop(name) for name in ("fleet.floor", "fleet.chain.n1000")]
        check(f"failed beside another: {code} {rows} {failed}", code == 1 and rows == {"fleet.joins": (0.5, None)} and
              all(ratio is None and "the bench failed" in why for ratio, why in failed))


def left_by(pid):
    """Folders, namespaces and processes of a bench."""
    begins = f"tombolo-bench-{pid}-"
    named = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout if shutil.which("ip") else ""
    return list(leavings.folders(begins)), [n for n in named.split() if n.startswith(f"tb-bench-{pid}-")], leavings.marked("TOMBOLO_BENCH", begins)


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def may_have_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"tb-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


def a_killed_bench_leaves_nothing():
    if not os.path.isdir(os.environ["TB_BUILD_DIR"]) or not may_have_namespaces():
        print("a_killed_bench_leaves_nothing: skipped: namespaces need root and iproute2, and TB_BUILD_DIR a build")
        return
    bench = subprocess.Popen([sys.executable, str(ROOT / "bench/run"), "--quick", "--only", "figure.standalone"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        check("it made folders, namespaces and processes", within(60, lambda: all(left_by(bench.pid))))
    finally:
        bench.kill()
        bench.wait()
    check(f"all of it goes: {left_by(bench.pid)}", within(60, lambda: not any(left_by(bench.pid))))


TEST_WITH_A_LAB = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import harness
lab = harness.Lab()
print(subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid,
      lab.dir, lab.arena_dir, flush=True)
sys.stdin.read()
"""


def leavings_of_a_killed_test_go_at_the_next_start():
    """And nothing of a test that runs; nor does a process stay of which no folder tells any more."""
    tests = []

    def begin():
        tests.append(subprocess.Popen([sys.executable, "-c", TEST_WITH_A_LAB, str(ROOT / "tests/system")], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env=env))
        return tests[-1], [pathlib.Path(word) for word in ("/proc/" + tests[-1].stdout.readline()).split()]
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TMPDIR=folder, TB_TEST_SHM=folder)
        try:
            killed, of_killed = begin()
            other, of_other = begin()
            killed.kill()
            killed.wait()
            check(f"it stands there: {of_killed}", all(p.exists() for p in of_killed))
            _, of_last = begin()
            check(f"all of it goes: {of_killed}", within(20, lambda: not any(p.exists() for p in of_killed)))
            check(f"what is in use stays: {of_other}", all(p.exists() for p in of_other))
        finally:
            for test in tests:
                test.kill()
                test.communicate()
    leavings.clear_orphans("tombolo-test")  # of the other two's processes only /proc tells now
    check("without a folder too", within(20, lambda: not of_other[0].exists() and not of_last[0].exists()))


def best_vector(build):
    done = subprocess.run([str(build / "bench/tombolo-hop-floor"), "--way", "digest", "--bytes", "1048576"], capture_output=True,
                          text=True, timeout=120, check=True)
    return json.loads(done.stdout)["vector"]


def a_build_runs_without_avx512():
    """The changed program says so. Where this processor lacks AVX-512 it chooses as before."""
    build = pathlib.Path(os.environ["TB_BUILD_DIR"])
    before = best_vector(build)
    if before in ("neon", "portable"):
        return
    with tempfile.TemporaryDirectory() as folder:
        source, changed = pathlib.Path(folder) / "from", pathlib.Path(folder) / "to"
        (source / "bench").mkdir(parents=True)
        shutil.copy(build / "bench/tombolo-hop-floor", source / "bench")
        tool = [sys.executable, str(ROOT / "bench/without_avx512")]
        done = subprocess.run([*tool, str(source), str(changed)], capture_output=True, text=True, timeout=60)
        check(f"it is made: {done.stderr}", done.returncode == 0)
        check(f"{before} becomes avx2", best_vector(changed) == "avx2")
        check("the build is as it was", best_vector(source) == before)
        empty = pathlib.Path(folder) / "empty"
        empty.mkdir()
        done = subprocess.run([*tool, str(empty), str(empty / "to")], capture_output=True, text=True, timeout=60)
        check("a folder without a program is refused", done.returncode == 1 and "no program" in done.stderr)


run_all(the_command_prints_one_object, a_build_runs_without_avx512, the_exit_code_says_whether_the_bench_failed,
        a_killed_bench_leaves_nothing, leavings_of_a_killed_test_go_at_the_next_start)
