"""The Python package, against the same calls and reads without it."""

import json
import os
import pathlib
import subprocess

import harness
import keys
from measuring import Skip, measurement

MB = 1000


@measurement("python.publish", "python.activate", "python.files", memory=True)
def python_calls(bench):
    environment = subprocess.run([keys.ROOT / "tests/frameworks/environment", "torch"], capture_output=True, text=True, check=False)
    if environment.returncode != 0:
        raise Skip(environment.stderr.strip())
    with harness.Lab() as lab:
        site = lab.site("east", arena_mib=4 * MB + 512)
        site.models["policy"] = dict(home="east", keep=1)
        site.start()
        library = pathlib.Path(os.environ["TB_BUILD_DIR"]).resolve() / "intra/client/libtombolo.so"
        argv = [environment.stdout.strip(), keys.ROOT / "bench/python_calls.py", f"unix:{site.session_socket}", lab.dir, str(MB), str(bench.rounds)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=dict(os.environ, TOMBOLO_LIBRARY=str(library), TMPDIR=str(lab.dir),
                                                                               PYTHONPATH=str(keys.ROOT / "python"))) as calls:
            try:
                for line in calls.stdout:
                    yield {key: tuple(pair) for key, pair in json.loads(line).items()}
                if calls.wait() != 0:
                    raise harness.Failed(f"python_calls.py ended with {calls.returncode}")
            finally:
                calls.kill()
