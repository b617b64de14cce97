"""The release before: its gateway and command line, built from a commit of this repository.

OLD is the last commit of the layouts before the ones of today: links bring no signatures of homes,
the store has no tables of signatures, of owners of runs and of the audit record, and the arena's
format is 1. TB_OLD_BUILD_DIR names a build of it that is there; else it is built once, beside this
build, which takes some minutes. Only a clone without that commit skips the tests: an old release
that cannot be built here fails them."""

import fcntl
import os
import pathlib
import shutil
import subprocess

from waiting import BUILD, SOURCE, Failed, Skipped

OLD = "b428717384b90a5812542c3ee89dc239b5c1844c"
BUILD_S = 3600


def run(what, argv, log):
    with open(log, "ab") as out:
        if subprocess.run([str(a) for a in argv], stdout=out, stderr=out, timeout=BUILD_S).returncode != 0:
            raise Failed(f"the release before cannot be {what} here: see {log}")


def source(tree, log):
    """Its files, as the repository has them: all of them, or no tree."""
    known = subprocess.run(["git", "-C", SOURCE, "cat-file", "-e", f"{OLD}^{{commit}}"], capture_output=True).returncode == 0
    if not known:
        raise Skipped(f"this clone has no commit {OLD[:12]}: it has no history")
    if not tree.exists():
        part = tree.with_name("tree.partial")
        shutil.rmtree(part, ignore_errors=True)  # of a test that was killed
        part.mkdir(parents=True)
        run("read", ["bash", "-c", 'set -o pipefail; git -C "$1" archive "$2" | tar -x -C "$3"', "bash", SOURCE, OLD, part], log)
        part.rename(tree)


def build():
    """The folder with its programs."""
    given = os.environ.get("TB_OLD_BUILD_DIR")
    if given:
        return pathlib.Path(given)
    place = BUILD / "release-before" / OLD[:12]
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:  # another test builds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").exists():
            log = place / "build.log"
            source(place / "tree", log)
            run("configured", ["cmake", "-S", place / "tree", "-B", place / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"], log)
            run("built", ["cmake", "--build", place / "build", "--target", "tombolo", "tombolod"], log)
            (place / "done").touch()
    return place / "build"


def give(site, old):
    """The site starts so from the next start on."""
    place = build() if old else BUILD
    site.old = old
    site.tombolo, site.tombolod = place / "gateway/cli/tombolo", place / "gateway/daemon/tombolod"
