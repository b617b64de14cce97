#!/usr/bin/env python3
"""The contents of the folder of `tombolo subscribe`: whole versions, a link to the newest, and a
message for all that is neither.

Covers: gateway/cli/versions/subscribe_command.c gateway/cli/versions/version_folder.c
Covers: gateway/cli/versions/version_hook.c
Covers: gateway/cli/versions/subscribe_run.c gateway/cli/versions/version_arrival.c
Covers: gateway/cli/versions/withdrawn_folders.c
"""

import contextlib
import filecmp
import json
import os
import signal
import subprocess
import sys

from harness import PATIENCE, TOMBOLO, Failed, Process, SmallMount, expect, main, safetensors, scenario, up, version_folder, wait_for


def one_file(lab, number, count=4096):
    folder = lab.dir / f"source-{number}"
    folder.mkdir()
    safetensors(folder / "m.safetensors", {"w": ("U8", [count], bytes([number]) * count)})
    return folder


def follower(lab, site, into, *options, prefix=(), name="follow"):
    made = Process(name, [*prefix, TOMBOLO, "subscribe", "policy", "--into", into, "--follow", "--gateway",
                          f"unix:{site.session_socket}", *options], lab.dir / f"{name}.log", stdout=subprocess.PIPE)
    lab.processes.append(made)
    return made


def is_same(source, folder):
    return filecmp.cmp(source / "m.safetensors", folder / "m.safetensors", shallow=False)


def names(into):
    return sorted(p.name for p in into.iterdir() if p.name != ".tombolo-lock")


def home(lab, **model):
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=8, **model)
    up(site)
    return site


def points_to(into, number):
    """Whether `latest` names that version."""
    def does():
        with contextlib.suppress(OSError):
            return os.readlink(into / "latest") == version_folder(into, number).name
        return False
    return does


@scenario
def follow_keeps_some_and_links_the_newest(lab):
    """P2: `latest` names the newest; older folders go, but not what has no marker; the command
    sees each version that `latest` named, and one that fails is told and ends nothing."""
    east = home(lab)
    into, seen = lab.dir / "into", lab.dir / "seen"
    command = (f'echo "$TOMBOLO_MODEL $TOMBOLO_RUN $TOMBOLO_NUMBER $TOMBOLO_UID $TOMBOLO_DIR $(LC_ALL=C ls "$TOMBOLO_DIR")" | tr "\\n" " " >> {seen}; '
               f'readlink {into}/latest >> {seen}; echo on standard output; test "$TOMBOLO_NUMBER" != 2')
    follow = follower(lab, east, into, "--keep", "2", "--on-version", command, "--json")
    wait_for("the follower is there", lambda: east.control("status")["sessions"])
    mine = version_folder(into, 0)
    mine.mkdir()
    for n in range(1, 5):
        source = one_file(lab, n)
        east.cli("publish", "policy", source, "--version", n)
        wait_for(f"the command saw {n}", lambda n=n: seen.exists() and len(seen.read_text().splitlines()) == n)
        expect(f"bytes of {n}", is_same(source, version_folder(into, n)), True)
    wait_for("two are left", lambda: names(into) == [mine.name, version_folder(into, 3).name, version_folder(into, 4).name, "latest"])
    expect("exit code", follow.terminate(), 0)
    for n, line in enumerate(seen.read_text().splitlines(), start=1):
        folder = version_folder(into, n)
        uid = next(v["uid"] for v in east.versions() if v["number"] == n)
        expect(f"what the command saw of {n}", line, f"policy 1 {n} {uid} {folder} STABLE m.safetensors {folder.name}")
    lines = [json.loads(line) for line in follow.popen.stdout.read().splitlines()]
    expect("results", [line["number"] for line in lines if line["ok"]], [1, 2, 3, 4])
    failures = [line["error"] for line in lines if not line["ok"]]
    expect("failures", failures, ["--on-version for 1:2: exit code 1"])
    expect("the command's output", len(follow.logged("on standard output")), 4)


@scenario
def a_signal_ends_the_command_too(lab):
    """P10: SIGTERM ends the command that --on-version runs, with all that it started."""
    east = home(lab)
    into, pids = lab.dir / "into", lab.dir / "pids"
    follow = follower(lab, east, into, "--on-version", f"sleep 600 & echo $! > {pids}.new && mv {pids}.new {pids}; wait")
    east.cli("publish", "policy", one_file(lab, 1), "--version", "1")
    wait_for("the command runs", pids.exists)
    expect("exit code", follow.terminate(), 0)
    wait_for("what it started has ended", lambda: not os.path.exists(f"/proc/{pids.read_text().strip()}"))


@scenario
def a_withdrawn_folder_says_so(lab):
    """P2 P10: an operator withdraws the newest: WITHDRAWN with the reason replaces STABLE,
    `latest` goes back, and the command hears of the version that is the newest now. One that is
    not the newest is marked, too; without --follow at the next start."""
    east = home(lab)
    into, seen = lab.dir / "into", lab.dir / "seen"
    follow = follower(lab, east, into, "--on-version", f"echo $TOMBOLO_NUMBER >> {seen}", "--json")
    for n in (1, 2, 3):
        east.cli("publish", "policy", one_file(lab, n), "--version", n)
        wait_for(f"{n} is the newest", points_to(into, n))
    east.cli("withdraw", "policy", "1:3")
    wait_for("3 says so", (version_folder(into, 3) / "WITHDRAWN").exists)
    wait_for("2 is the newest again", points_to(into, 2))
    wait_for("the command saw it", lambda: seen.read_text().split() == ["1", "2", "3", "2"])
    text = json.loads((version_folder(into, 3) / "WITHDRAWN").read_text())
    expect("the reason", (text["number"], "operator withdrew" in text["withdrawn"]), (3, True))
    expect("no marker of a good one", (version_folder(into, 3) / "STABLE").exists(), False)
    east.cli("withdraw", "policy", "1:1")
    wait_for("1 says so", (version_folder(into, 1) / "WITHDRAWN").exists)
    expect("exit code", follow.terminate(), 0)
    lines = [json.loads(line) for line in follow.popen.stdout.read().splitlines()]
    expect("withdrawals told", [line["error"].split()[1] for line in lines if not line["ok"]], ["1:3", "1:1"])
    east.cli("withdraw", "policy", "1:2")
    done = east.cli("subscribe", "policy", "--into", into, "--version", "1:2", "--timeout", PATIENCE, check=False)
    expect(f"exit code for a withdrawn one ({done.stderr})", done.returncode, 6)
    expect("2 says so", (version_folder(into, 2) / "WITHDRAWN").exists(), True)


@scenario
def a_folder_with_a_marker_is_never_overwritten(lab):
    """P2: a folder of the same run and number with another version's marker stays as it is: it
    is told, and the exit code says so."""
    east = home(lab)
    into = lab.dir / "into"
    east.cli("publish", "policy", one_file(lab, 1), "--version", "1")
    east.cli("subscribe", "policy", "--into", into, "--timeout", PATIENCE)
    marker = version_folder(into, 1) / "STABLE"
    text = json.loads(marker.read_text())
    text["uid"] = "f" * 32
    for content in (json.dumps(text), ""):
        marker.write_text(content)
        done = east.cli("subscribe", "policy", "--into", into, "--timeout", PATIENCE, check=False)
        expect(f"exit code ({done.stderr})", (done.returncode, "not overwritten" in done.stderr), (1, True))
        expect("the marker", marker.read_text(), content)
    follow = follower(lab, east, into)
    source = one_file(lab, 2)
    wait_for("it is told", lambda: follow.logged("not overwritten"))
    east.cli("publish", "policy", source, "--version", "2")
    wait_for("the follow goes on", points_to(into, 2))
    expect("exit code", follow.terminate(), 0)


@scenario
def a_follow_does_not_go_back(lab):
    """P2 P10: a gateway that offers an older version than the one that `latest` names is not
    followed, which is told; without the link, or with a newer version, the follow goes on."""
    east = home(lab)
    into = lab.dir / "into"
    east.cli("publish", "policy", one_file(lab, 1), "--version", "1")
    east.cli("subscribe", "policy", "--into", into, "--timeout", PATIENCE)
    older, newer = version_folder(into, 1), version_folder(into, 5, run=7)
    marker = json.loads((older / "STABLE").read_text())
    older.rename(newer)
    (newer / "STABLE").write_text(json.dumps({**marker, "run": 7, "number": 5, "uid": "e" * 32}))
    (into / "latest").symlink_to(newer.name)
    follow = follower(lab, east, into)
    wait_for("it is told", lambda: follow.logged("is 1:1, older than 7:5", "not withdrawn"))
    east.cli("publish", "policy", one_file(lab, 2), "--version", "2")
    wait_for("it is told", lambda: follow.logged("is 1:2, older than 7:5"))
    expect("folders", names(into), [newer.name, "latest"])
    expect("exit code", follow.terminate(), 0)
    (into / "latest").unlink()
    again = follower(lab, east, into, name="again")
    wait_for("2 is the newest", points_to(into, 2))
    expect("exit code", again.terminate(), 0)


@scenario
def a_full_disk_holds_the_follow_up(lab):
    """P2 P10: no room: told once, nothing of the version is left; with room the follow goes on
    by itself, says so, and takes the newest. A killed follower leaves nothing that the next one
    does not remove."""
    east = home(lab)
    disk = SmallMount(lab, lab.dir / "into", size="8m")
    for n in (1, 2, 3):
        one_file(lab, n, count=3 << 20)
    follow = follower(lab, east, disk.dir, prefix=disk.enter)
    east.cli("publish", "policy", lab.dir / "source-1", "--version", "1")
    wait_for("1 is there", points_to(disk.seen, 1))
    disk.fill()
    east.cli("publish", "policy", lab.dir / "source-2", "--version", "2")
    wait_for("it is told", lambda: follow.logged("No space left on device", "waits until there is room"))
    wait_for("nothing is left of it", lambda: names(disk.seen) == [version_folder(disk.dir, 1).name, "ballast", "latest"])
    east.cli("publish", "policy", lab.dir / "source-3", "--version", "3")
    wait_for("its activation waits", lambda: east.versions()[-1]["state"] == "kept")
    disk.make_room()
    wait_for("3 is there", points_to(disk.seen, 3))
    expect("bytes", is_same(lab.dir / "source-3", version_folder(disk.seen, 3)), True)
    wait_for("it is told", lambda: follow.logged("there is room again"))
    expect("told once", len(follow.logged("waits until there is room")), 1)
    expect("the marker of 1", (version_folder(disk.seen, 1) / "STABLE").exists(), True)
    follow.kill()
    left = disk.seen / f".tombolo-new-{version_folder(disk.dir, 2).name}"
    left.mkdir()
    (left / "m.safetensors").write_bytes(b"half of it")
    again = follower(lab, east, disk.dir, prefix=disk.enter, name="again")
    wait_for("what was left is gone", lambda: not left.exists())
    again.signal(signal.SIGINT)
    again.ended()


@scenario
def a_folder_of_subscribe_can_be_adopted(lab):
    """P1: another site adopts the files that one site's subscribe wrote."""
    east, west, link = lab.east_west()
    east.start()
    east.cli("publish", "policy", one_file(lab, 1, count=1 << 20), "--version", "1")
    into = lab.dir / "into"
    east.cli("subscribe", "policy", "--into", into, "--timeout", PATIENCE)
    link.refusing = True
    west.start()
    with subprocess.Popen([str(TOMBOLO), "adopt", "policy", str(version_folder(into, 1)), "--json"], text=True, stdout=subprocess.PIPE,
                          env=dict(os.environ, TOMBOLO_CONTROL=str(west.control_socket))) as command:
        wait_for("the files are read", lambda: west.control("adopt", model="policy").get("adopt", {}).get("phase") == "waiting")
        link.refusing = False
        said = json.loads(command.stdout.read())
    if said["claimed_bytes"] < 1 << 20:
        raise Failed(f"adopted {said}")


if __name__ == "__main__":
    sys.exit(main())
