"""The Python package, against the same calls and reads without it; and vLLM that changes over by
it, against vLLM alone."""

import json
import os
import pathlib
import subprocess

import harness
import keys
from measuring import Skip, measurement

MB = 1000


def python_of(environment):
    """Of tests/frameworks."""
    done = subprocess.run([keys.ROOT / "tests/frameworks/environment", environment],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(done.stderr.strip())
    return done.stdout.strip()


def lines_of(lab, environment, program, *arguments):
    """Of a program of bench/ that runs in an environment of tests/frameworks, as JSON."""
    library = pathlib.Path(os.environ["TB_BUILD_DIR"]).resolve() / "intra/client/libtombolo.so"
    made = dict(os.environ, TOMBOLO_LIBRARY=str(library), TMPDIR=str(lab.dir), TB_ENVIRONMENT=environment,
                PYTHONPATH=str(keys.ROOT / "python"))
    argv = [python_of(environment), keys.ROOT / "bench" / program, *map(str, arguments)]
    with open(lab.dir / f"{program}.log", "w", encoding="utf-8") as log, \
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, env=made) as calls:
        try:
            for line in calls.stdout:
                yield json.loads(line)
            if calls.wait() != 0:
                raise harness.Failed(f"{program} ended with {calls.returncode}")
        finally:
            calls.kill()


def one_site(lab, arena_mib, keep):
    site = lab.site("east", arena_mib=arena_mib)
    site.models["policy"] = dict(home="east", keep=keep)
    site.start()
    return f"unix:{site.session_socket}"


@measurement("python.publish", "python.activate", "python.files", memory=True)
def python_calls(bench):
    python_of("torch")
    with harness.Lab() as lab:
        gateway = one_site(lab, 4 * MB + 512, keep=1)
        for said in lines_of(lab, "torch", "python_calls.py", gateway, lab.dir, MB, bench.rounds):
            yield {key: tuple(pair) for key, pair in said.items()}


@measurement("vllm.stall.in_place")
def vllm_stall(bench):
    python_of("vllm")
    with harness.Lab() as lab:
        gateway = one_site(lab, 1536, keep=2)
        for pair in lines_of(lab, "vllm", "vllm_stall.py", gateway, lab.dir, bench.rounds):
            yield {"vllm.stall.in_place": tuple(pair)}
