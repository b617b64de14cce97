"""The harness itself: a test that fails leaves no file, process or network namespace behind.

Covers: tests/system/harness.py tests/system/failing.py sim/leavings.py
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from harness import Failed, Skipped, Veth, expect, leavings, main, scenario, wait_for


def left(folders):
    """The files in the folders, and the processes that were started there."""
    return [str(path) for folder in folders for path in folder.iterdir()] + [*leavings.marked("TMPDIR", str(folders[0]))]


def run(way, code, words=""):
    """Runs failing.py that way, which ends with that code and says those words; until nothing of
    it is left."""
    with tempfile.TemporaryDirectory(prefix="h") as name:  # short: the path of a socket in it has at most 107 characters
        folders = [pathlib.Path(name) / "f", pathlib.Path(name) / "m"]
        for folder in folders:
            folder.mkdir()
        patience = "5" if way == "leaves_a_process" else os.environ.get("TB_PATIENCE_S", "60")
        env = {**os.environ, "TMPDIR": str(folders[0]), "TB_TEST_SHM": str(folders[1]), "TB_PATIENCE_S": patience}
        program = subprocess.Popen([sys.executable, "-B", str(pathlib.Path(__file__).with_name("failing.py")), way], env=env,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = program.communicate(timeout=120)
        if program.returncode != code or words.encode() not in said:
            raise Failed(f"{way}: ended with {program.returncode}, and said: {said[-3000:].decode(errors='replace')}")
        wait_for(f"{way}: nothing is left", lambda: not left(folders))
        return program.pid


@scenario
def a_failing_test_leaves_nothing(_):
    run("fails", 1, "FAILED: as it should")
    run("is_broken", 1, "KeyError: 'as it should'")
    run("leaves_a_process", 1, ": sleep 1000")


@scenario
def a_killed_test_leaves_nothing(_):
    run("is_killed", -9)


@scenario
def devices_that_are_half_made_go(_):
    if os.geteuid() != 0:
        raise Skipped("only root makes network namespaces")
    pid = run("is_skipped_half_way", 77)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    expect("namespaces of the test", [line for line in names.splitlines() if line.startswith(f"{Veth.PREFIX}{pid}-")], [])


if __name__ == "__main__":
    sys.exit(main())
