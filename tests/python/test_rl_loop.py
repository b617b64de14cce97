"""How python/examples/rl_loop measures, by reports made by hand; tests/frameworks runs the loop.

Covers: python/examples/rl_loop/measures.py python/examples/rl_loop/plot.py python/examples/rl_loop/task.py
Covers: python/examples/rl_loop/run
"""

import copy
import hashlib
import os
import random
import subprocess
import sys
import xml.etree.ElementTree

import packages
from harness import expect, main, scenario

LOOP = packages.SOURCE / "python/examples/rl_loop"
sys.path.insert(0, str(LOOP))
import measures  # noqa: E402
import plot  # noqa: E402
import task  # noqa: E402


def version(number, begun, **fields):
    return {
        "number": number,
        "begun": begun,
        "published": begun + 0.01,
        "held": begun + 0.03,
        "bytes": 1000,
        "wire_bytes": 100 * number,
        "changed": number / 10,
        "digest": f"digest {number}",
        **fields,
    }


def switch(engine, number, told, resumed, **fields):
    return {
        "engine": engine,
        "version": number,
        "told": told,
        "staged": resumed - 0.5,
        "paused": resumed - 0.25,
        "resumed": resumed,
        "tokens": 7,
        "in_flight": 3,
        "digest": f"digest {number}",
        **fields,
    }


def request(step, answered, *spans):
    return {"engine": 0, "step": step, "reward": 0.5, "answered": answered, "spans": list(spans)}


# Engine 1 passes over version 2, and is the later one each time.
REPORT = {
    "title": "two <engines>",
    "began": 10,
    "parameters": 5,
    "void": False,
    "versions": [version(0, 10, changed=None), version(1, 20), version(2, 30), version(3, 40)],
    "starts": [{"engine": 0, "digest": "digest 0"}, {"engine": 1, "digest": "digest 0"}],
    "switches": [
        switch(0, 1, 20.5, 22),
        switch(1, 1, 20.5, 23),
        switch(0, 2, 30.5, 32),
        switch(0, 3, 40.5, 42),
        switch(1, 3, 40.5, 44),
    ],
    "steps": [{"number": 1, "reward": 0.25}, {"number": 2, "reward": 0.5}, {"number": 3, "reward": 0.75}],
    "requests": [
        request(1, 15, [0, 24, 0]),
        request(2, 20.02, [0, 24, 0]),
        request(3, 35, [0, 4, 0], [4, 24, 1]),
    ],
}


@scenario
def a_report_gives_the_six_measures(_lab):
    """Of each version, and of all: how long, how much, how far behind."""
    found = measures.summary(REPORT)
    second = found["versions"][1]
    expect("published", [round(second[key], 6) for key in ("publish_s", "held_s")], [0.01, 0.03])
    expect("size", (second["bytes"], second["wire_bytes"], second["changed"]), (1000, 200, 0.2))
    expect("prepared", second["prepare_s"], [1.0])
    expect("pauses", (second["pause_s"], found["pause_s"]), ([0.25], {"median": 0.25, "most": 0.25}))
    expect(
        "an engine that passed over a version has converged with a newer one",
        [row["converge_s"] for row in found["versions"]],
        [3, 14, 4],
    )
    expect("the last engine behind the first", [row["spread_s"] for row in found["versions"]], [1, 12, 2])
    expect("lag of answers", [row["answered"] for row in measures.lags(REPORT)], [0, 1, 2])
    expect("lag of training", [row["trained"] for row in measures.lags(REPORT)], [0, 1, 2])
    expect("of two versions", found["requests_of_several_versions"], 1)
    expect("rewards", (found["reward_first"], found["reward_last"]), (0.25, 0.75))


@scenario
def weights_that_differ_are_named(_lab):
    """P1: an engine, and the version whose weights it does not have."""
    expect("equal", (measures.summary(REPORT)["served"], measures.differing(REPORT)), (7, []))
    report = copy.deepcopy(REPORT)
    report["starts"][1]["digest"] = report["switches"][3]["digest"] = "another"
    expect("other", measures.differing(report), ["engine 1, version 0", "engine 0, version 3"])


@scenario
def a_version_that_an_engine_never_served_is_not_counted(_lab):
    report = copy.deepcopy(REPORT)
    report["switches"] = [row for row in report["switches"] if (row["engine"], row["version"]) != (1, 3)]
    found = measures.summary(report)
    expect("converged", [row["converge_s"] for row in found["versions"]], [3, None, None])
    report["switches"] = []
    lines = measures.table(measures.summary(report)).splitlines()
    expect("nothing is known", [line.split()[-2:] for line in lines if "activation pause" in line], [["-", "-"]])


@scenario
def a_picture_is_readable_on_dark_and_light(_lab):
    """Four charts on a ground of their own, in the colours that the reader's screen asks for."""
    report = copy.deepcopy(REPORT)
    report["versions"][2]["wire_bytes"] = None
    drawn = plot.svg(report, measures.summary(report))
    tree = xml.etree.ElementTree.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    expect("charts", len(tree.findall(f"{name}g")), 4)
    expect("lines", len(list(tree.iter(f"{name}polyline"))), 1 + 4 + 2 + 2)
    expect("one dot a number that is known", len(list(tree.iter(f"{name}circle"))), 3 + 4 * 3 + 3 + 2 + 2 * 3)
    expect("a ground", "ground" in [rect.get("class") for rect in tree.iter(f"{name}rect")], True)
    expect(
        "both grounds",
        ("prefers-color-scheme: dark" in drawn, "nan" in drawn, "None" in drawn),
        (True, False, False),
    )
    expect("title", tree.find(f"{name}title").text, "two <engines>")


@scenario
def arithmetic_checks_an_answer(_lab):
    prompt = next(task.prompts(random.Random(1)))
    right = task.right_answer(prompt)
    expect(
        "one stride further each",
        {(b - a) % task.NUMBERS for a, b in zip(right, right[1:])},
        {prompt[1] - task.FIRST_STRIDE + 1},
    )
    expect("all", task.reward_of(prompt, right), 1.0)
    expect(
        "the last one is wrong",
        task.reward_of(prompt, [*right[:-1], task.END]),
        (task.ANSWER - 1) / task.ANSWER,
    )
    expect("tokens", all(0 < token < task.VOCABULARY for token in prompt + right), True)


def said(*words, **environment):
    done = subprocess.run(
        [sys.executable, LOOP / "run", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@scenario
def a_missing_package_is_said_before_anything_starts(lab):
    """P10: 77 and how to get it; 2 for a wrong option."""
    code, text = said("--help")
    expect(f"help: {text}", (code, "Example:" in text), (0, True))
    code, text = said("--steps", "0")
    expect(f"usage: {text}", (code, "--steps is a number from 1" in text), (2, True))
    code, text = said("--json", str(lab.dir / "absent/out.json"))
    expect(f"a file: {text}", (code, "no such file can be written" in text), (2, True))
    code, text = said("--local", TOMBOLO_PYTHON_CACHE=str(lab.dir))
    expect(f"environment: {text}", (code, "environment --make vllm" in text), (77, True))
    pinned = hashlib.sha256((packages.SOURCE / "tests/frameworks/vllm.txt").read_bytes()).hexdigest()[:12]
    made = lab.dir / f"vllm-{sys.version_info[0]}.{sys.version_info[1]}-{pinned}"
    made.mkdir()
    (made / "made").touch()
    code, text = said("--local", TOMBOLO_PYTHON_CACHE=str(lab.dir), TB_BUILD_DIR=str(lab.dir))
    expect(f"build: {text}", (code, "cmake --preset release" in text), (77, True))
    for program in ("gateway/daemon/tombolod", "gateway/cli/tombolo", "intra/client/libtombolo.so"):
        (lab.dir / program).parent.mkdir(parents=True, exist_ok=True)
        (lab.dir / program).touch()
    code, text = said(TOMBOLO_PYTHON_CACHE=str(lab.dir), TB_BUILD_DIR=str(lab.dir))
    expect(f"an emulated WAN: {text}", (code, any(word in text for word in ("root", "/dev/net/tun", "tombolo-wan-emulator"))), (77, True))


if __name__ == "__main__":
    sys.exit(main())
