"""Finds the package and the harness of tests/system, and torch's environment."""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.setdefault("TB_BUILD_DIR", str(SOURCE / "build/dev"))).resolve()
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests/system")]
os.environ.setdefault("TOMBOLO_LIBRARY", str(BUILD / "intra/client/libtombolo.so"))


def python_of(name):
    """The environment's python, or None: tests/frameworks/environment said why."""
    done = subprocess.run([SOURCE / "tests/frameworks/environment", name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr.strip(), flush=True)
        return None
    return done.stdout.strip()


def run_in(name):
    """Goes on in that environment; ends with 77, the sign of a skipped test, where there is none."""
    if os.environ.get("TB_ENVIRONMENT") == name:
        return
    python = python_of(name)
    if python is None:
        sys.exit(77)
    os.environ.update(TB_ENVIRONMENT=name, OMP_NUM_THREADS="1")
    os.execv(python, [python, *sys.argv])
