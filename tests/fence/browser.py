#!/usr/bin/env python3
"""browser.py ROOT: deploy/setup fetches the browser so that a slow mirror breaks nothing else.

The function of the script runs here with stand-ins for apt-get, timeout and id, which write down
how they were called:

    bounded  the download has a time limit, and nothing is unpacked in that call
    apart    dpkg works only after a whole download, without a limit and without the network
    last     every other fetch comes before it"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

STAND_IN = """#!/bin/bash
echo "$(basename "$0") $*" >> "$CALLS"
case $(basename "$0") in
id) echo 0 ;;
timeout) shift; "$@" ;;
apt-get) exit "$APT_EXIT" ;;
esac
"""


def calls(script, apt_exit):
    """(its exit code, the calls of fetch_browser), where apt-get ends with apt_exit."""
    function = re.search(r"^fetch_browser\(\) \{\n.*?^\}\n", script, re.M | re.S).group(0)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("apt-get", "timeout", "id"):
            (folder / name).write_text(STAND_IN)
            (folder / name).chmod(0o755)
        for name in ("bash", "env", "basename", "echo"):
            (folder / name).symlink_to(f"/usr/bin/{name}")
        (folder / "calls").touch()
        env = {"PATH": str(folder), "CALLS": str(folder / "calls"), "APT_EXIT": str(apt_exit)}
        done = subprocess.run(["/bin/bash", "-euo", "pipefail", "-c", f"tests=yes dry=no\n{function}fetch_browser"],
                              env=env, capture_output=True, text=True, check=False)
        said = (folder / "calls").read_text().splitlines()
        return done.returncode, [line for line in said if line.startswith(("timeout", "apt-get"))]


def main():
    with open(os.path.join(sys.argv[1], "deploy/setup"), encoding="utf-8") as text:
        script = text.read()
    wrong = []
    code, said = calls(script, 0)
    if code != 0 or len(said) != 3 or not said[0].startswith("timeout ") or "--download-only" not in said[1]:
        wrong.append(f"bounded: {said}")
    elif not said[2].startswith("apt-get ") or "--no-download" not in said[2]:
        wrong.append(f"apart: {said}")
    code, said = calls(script, 100)
    if code != 0 or any("--download-only" not in line for line in said):
        wrong.append(f"after a download that failed: exit code {code}, {said}")
    for order in re.findall(r"(?:^ *fetch_\w+\n)+", script, re.M):
        if not order.split()[-1] == "fetch_browser":
            wrong.append(f"last: {order.split()}")
    print("\n".join(wrong) or "the browser is downloaded in bounded time, apart from dpkg, as the last")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
