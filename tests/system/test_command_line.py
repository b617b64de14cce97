"""The command line as a person or a script uses it: files in at one site, the same files out at another; exit codes; the quickstart.

Covers: gateway/cli/tombolo.c gateway/cli/commands.c gateway/cli/options.c gateway/cli/manual.c
Covers: gateway/cli/output.c gateway/cli/publish_command.c gateway/cli/publish_run.c
Covers: gateway/cli/subscribe_command.c gateway/cli/gateway_session.c
Covers: gateway/cli/operator_commands.c gateway/cli/config_commands.c
Covers: gateway/config/start_checks.c gateway/config/config_explain.c sim/quickstart.c
"""

import contextlib
import filecmp
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

from capture import Capture
from harness import BUILD, PATIENCE, PATIENCE_S, SOURCE, TOMBOLO, TOMBOLOD, Failed, Process, Rollout, Skipped, Trainer, Worker, expect, main, safetensors, scenario, up, version_folder, wait_for

sys.path.append(str(SOURCE / "sim/wan"))
import leavings  # noqa: E402
import wanlab  # noqa: E402


def hugging_face(folder, seed):
    """A folder with two safetensors files, their index, a config, an empty file and a folder inside."""
    folder.mkdir()
    a = {f"w.{i}": ("BF16", [300, 1000], bytes((i * 7 + seed + k) % 251 for k in range(1000)) * 600) for i in range(4)}
    b = {"odd": ("U8", [13], bytes(range(13))), "empty": ("F32", [0, 4], b""), "scalar": ("F64", [], bytes(8)),
         "v": ("F32", [100, 100], bytes([seed]) * 40000)}
    safetensors(folder / "model-00001-of-00002.safetensors", a, padding=3)
    safetensors(folder / "model-00002-of-00002.safetensors", b)
    index = {"metadata": {}, "weight_map": {**{n: "model-00001-of-00002.safetensors" for n in a},
                                            **{n: "model-00002-of-00002.safetensors" for n in b}}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text('{"seed": %d}\n' % seed)
    (folder / "empty.txt").write_text("")
    (folder / "extra").mkdir()
    (folder / "extra" / "tokenizer.model").write_bytes(os.urandom(1 << 20))
    return folder


def files_of(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.name not in ("STABLE", ".tombolo-lock"))


def expect_same(left, right):
    expect(f"files of {right}", files_of(right), files_of(left))
    for name in files_of(left):
        expect(f"{right / name} is byte-identical", filecmp.cmp(left / name, right / name, shallow=False), True)


def refused(site, code, words, *args):
    done = site.cli(*args, check=False)
    expect(f"exit code of tombolo {' '.join(map(str, args))} ({done.stderr.strip()})", done.returncode, code)
    if words not in done.stderr + done.stdout:
        raise Failed(f"tombolo {' '.join(map(str, args))} said {done.stderr!r}, not {words!r}")
    return done


@scenario
def a_folder_crosses_byte_for_byte(lab):
    """P1: what subscribe writes is what publish read, header padding, empty files and folders included; the marker comes last."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    source = hugging_face(lab.dir / "source", 1)
    out = json.loads(east.cli("publish", "policy", source, "--version", "7", "--json").stdout)
    expect("result", (out["ok"], out["run"], out["number"], out["files"]), (True, 1, 7, 6))
    into = lab.dir / "into"
    got = json.loads(west.cli("subscribe", "policy", "--into", into, "--version", "7", "--json", "--timeout", PATIENCE).stdout)
    folder = version_folder(into, 7)
    expect("folder", got["folder"], str(folder))
    expect_same(source, folder)
    marker = json.loads((folder / "STABLE").read_text())
    expect("marker", (marker["uid"], marker["number"], marker["run"]), (out["uid"], 7, 1))
    # Asked again, nothing is fetched and nothing is written.
    before = (folder / "STABLE").stat().st_mtime_ns
    again = json.loads(west.cli("subscribe", "policy", "--into", into, "--latest", "--json").stdout)
    expect("was there", (again["was_there"], (folder / "STABLE").stat().st_mtime_ns), (True, before))


@scenario
def follow_writes_each_version_and_ends_on_a_signal(lab):
    """P2: The newest, then each newer one; standard output has a line a version; SIGINT ends it with 0."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    into = lab.dir / "into"
    sources = [hugging_face(lab.dir / f"s{n}", n) for n in range(1, 4)]
    east.cli("publish", "policy", sources[0], "--version", "1")
    west.wait_holds(east.versions()[-1]["uid"])
    follower = Process("follow", [TOMBOLO, "subscribe", "policy", "--into", into, "--follow", "--json", "--gateway",
                                  f"unix:{west.session_socket}"], lab.dir / "follow.log", stdout=subprocess.PIPE)
    lab.processes.append(follower)
    for n in range(1, 4):
        if n > 1:
            east.cli("publish", "policy", sources[n - 1], "--version", n)
        wait_for(f"version {n} is there", (version_folder(into, n) / "STABLE").exists)
        expect_same(sources[n - 1], version_folder(into, n))
    follower.signal(signal.SIGINT)
    expect("exit code", follower.ended(), 0)
    lines = [json.loads(line) for line in follower.popen.stdout.read().splitlines()]
    expect("numbers", [line["number"] for line in lines], [1, 2, 3])


def publishing(lab, site, name, *args):
    process = Process(name, [TOMBOLO, "publish", "policy", *map(str, args), "--json", "--gateway", f"unix:{site.session_socket}"],
                      lab.dir / f"{name}.log", stdout=subprocess.PIPE)
    lab.processes.append(process)
    return process


def published(site, folder, number, *args):
    return json.loads(site.cli("publish", "policy", folder, "--version", number, "--json", *args).stdout)


@scenario
def a_new_run_begins_on_purpose_alone(lab):
    """P2: A number that is not above the newest is refused, and so is a key that nobody used; --new-run starts a run and says what it shut out."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=8)
    up(east)
    folders = {n: hugging_face(lab.dir / f"s{n}", n) for n in (1, 2, 3)}
    first = published(east, folders[1], 1000)
    expect("the model's first run", (first["run"], first["new_run"], first["was_there"]), (1, True, False))
    for number in (5, 999, 1000):
        done = refused(east, 1, "--new-run", "publish", "policy", folders[2], "--version", number, "--json")
        expect(f"{number}: the newest is named", " 1000, the newest of run 1" in json.loads(done.stdout)["error"], True)
    refused(east, 1, "the newest run of policy is 1, and its newest version is 1000", "publish", "policy", folders[2], "--version", 1001, "--run", "k")
    # The command again, with the same bytes: no new run, no new version, and nobody is shut out.
    again = published(east, folders[1], 1000)
    expect("again", (again["run"], again["uid"], again["was_there"], "shut_out" in again), (1, first["uid"], True, False))
    expect("in words", "policy 1:1000 is there already" in east.cli("publish", "policy", folders[1], "--version", 1000).stdout, True)
    expect("the next number", published(east, folders[2], 1001)["run"], 1)
    # Each of these was refused without a trace: the version that is there is still good.
    expect("versions", sorted((v["number"], v["state"]) for v in east.versions()), [(1000, "kept"), (1001, "kept")])
    new = published(east, folders[3], 5, "--new-run")
    expect("a new run", (new["run"], new["new_run"], new["shut_out"]), (2, True, {"run": 1, "number": 1001}))
    retried = published(east, folders[3], 5, "--new-run")
    expect("its retry", (retried["run"], retried["uid"], retried["new_run"], retried["was_there"]), (2, new["uid"], False, True))
    said = east.cli("publish", "policy", folders[3], "--version", 4, "--run", "k", "--new-run").stdout
    expect("in words", "run 2, whose newest version is 5, is shut out" in said, True)
    expect("a run of one's own goes on", published(east, folders[1], 6, "--run", "k")["run"], 3)
    refused(east, 1, "--run KEY --new-run starts another", "publish", "policy", folders[3], "--version", 5, "--new-run")
    expect("runs", sorted({v["run"] for v in east.versions()}), [1, 2, 3])


@scenario
def a_number_is_above_the_newest_of_the_run_before_too(lab):
    """P2: A trainer that has begun its run and published nothing yet: a number below the newest is refused all the same; its library says what
    the newest is."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=8)
    up(east)
    source = hugging_face(lab.dir / "source", 1)
    published(east, source, 1000)
    rank = Worker(lab, "rank", east)
    run = rank.ok("run", model="policy", key="mine")
    expect("the run", (run["run_order"], run["shut_out_run_order"], run["shut_out_number"]), (2, 1, 1000))
    refused(east, 1, "version 5 is not above 1000, the newest of run 1", "publish", "policy", source, "--version", 5)
    rank.ok("publish", model="policy", run=run["run"], number=1001, blob="x")
    error = rank.refused("bad_state", "publish", model="policy", run=run["run"], number=7, blob="x")["error"]
    expect("the library names the newest", "its newest version is 1001" in error, True)
    error = rank.refused("bad_state", "run_join", model="policy", key="other")["error"]
    expect("and who has the model", "the newest run of policy is 2" in error, True)
    expect("the trainer's own key", rank.ok("run_join", model="policy", key="mine")["joined"], True)


@scenario
def runs_follow_the_rule(lab):
    """P2: A higher number goes on with the newest run, --new-run starts one; R:N names a run."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=8)
    up(east)
    names = {}
    for n, (number, run, how) in enumerate([(5, 1, []), (9, 1, []), (3, 2, ["--new-run"]), (4, 2, []), (9, 2, [])], start=1):
        source = hugging_face(lab.dir / f"s{n}", n)
        expect(f"run of the {n}th publish", published(east, source, number, *how)["run"], run)
        names[(run, number)] = source
    into = lab.dir / "into"
    for wanted, key in (("9", (2, 9)), ("1:9", (1, 9)), ("5", (1, 5)), ("2:3", (2, 3))):
        folder = version_folder(into, key[1], run=key[0])
        got = json.loads(east.cli("subscribe", "policy", "--into", into, "--version", wanted, "--json", "--timeout", PATIENCE).stdout)
        expect(f"folder of {wanted}", got["folder"], str(folder))
        expect_same(names[key], folder)
    # A key of one's own: with --new-run it starts a run, the same key joins it, the old one is shut out (P2).
    more = hugging_face(lab.dir / "more", 9)
    expect("run of a new key", published(east, more, 1, "--run", "mine", "--new-run")["run"], 3)
    expect("run of that key", published(east, more, 2, "--run", "mine")["run"], 3)
    published(east, more, 1, "--run", "other", "--new-run")
    refused(east, 1, "fenced", "publish", "policy", more, "--version", 3, "--run", "mine")
    # The audit trail names who opened each run, by what the socket proved (P8, P10).
    with contextlib.closing(sqlite3.connect(east.dir / "store.sqlite")) as store:
        opened = store.execute("SELECT who, COUNT(DISTINCT run_order) FROM audit WHERE what = 'run.open' AND why = 'opened' GROUP BY who").fetchall()
        later = store.execute("SELECT DISTINCT who FROM audit WHERE what LIKE 'run.%' AND why <> 'opened'").fetchall()
    expect("who opened the runs", opened, [(f"unix:{os.getuid()}", 4)])
    expect("who it was when others had published in them", later, [(f"unix:{os.getuid()}",)])


@scenario
def shards_from_several_processes_are_one_version(lab):
    """P2: Each process gives its files; the version is kept when all have come, and arrives as one folder."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    source = hugging_face(lab.dir / "source", 3)
    files = sorted(source.glob("*.safetensors"))
    first = Process("shard0", [TOMBOLO, "publish", "policy", files[0], source / "config.json", "--version", "4", "--run", "k", "--shard", "0/2",
                               "--quiet", "--gateway", f"unix:{east.session_socket}"], lab.dir / "shard0.log")
    lab.processes.append(first)
    wait_for("one shard is sealed", lambda: any(v["sealed_shards"] == 1 for v in east.versions()))
    expect("the first process waits", first.alive(), True)
    east.cli("publish", "policy", files[1], source / "config.json", "--version", "4", "--run", "k", "--shard", "1/2")
    expect("exit code of the first", first.ended(), 0)
    west.cli("subscribe", "policy", "--into", lab.dir / "into", "--version", "4", "--timeout", PATIENCE)
    for name in (files[0].name, files[1].name, "config.json"):
        expect(f"{name} is byte-identical", filecmp.cmp(source / name, version_folder(lab.dir / "into", 4) / name, shallow=False), True)


@scenario
def ranks_with_one_file_name(lab):
    """P1: Two ranks give a file of one name. Equal bytes are one file; others, under an equal header, are refused when they are published."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=8)
    up(east)
    folders = [lab.dir / f"rank{i}" for i in range(3)]
    for folder, seed in zip(folders, (1, 1, 2)):
        folder.mkdir()
        safetensors(folder / "model.safetensors", {"w": ("U8", [300000], bytes([seed]) * 300000)})
    run = ("--run", "k", "--timeout", PATIENCE)
    first = publishing(lab, east, "equal", folders[0], "--version", 1, "--shard", "0/2", *run)
    wait_for("one shard is sealed", lambda: any(v["sealed_shards"] == 1 for v in east.versions()))
    published(east, folders[1], 1, "--shard", "1/2", *run)
    expect("exit code of the first", first.ended(), 0)
    east.cli("subscribe", "policy", "--into", lab.dir / "into", "--version", 1, "--timeout", PATIENCE)
    expect_same(folders[0], version_folder(lab.dir / "into", 1))
    first = publishing(lab, east, "other", folders[0], "--version", 2, "--shard", "0/2", *run)
    wait_for("one shard is sealed", lambda: any(v["sealed_shards"] == 1 and v["number"] == 2 for v in east.versions()))
    refused(east, 1, 'shards 0 and 1 have a file "model.safetensors" with different bytes', "publish", "policy", folders[2], "--version", 2,
            "--shard", "1/2", *run)
    expect("exit code of the first, which lacks its other shard", first.ended(), 6)


@scenario
def components_and_overlays_travel(lab):
    """P1: A folder of components whose tensors have equal names, and an overlay checkpoint, arrive as they were."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    pipe = lab.dir / "pipe"
    for i, name in enumerate(("text_encoder", "text_encoder_2")):
        (pipe / name).mkdir(parents=True)
        safetensors(pipe / name / "model.safetensors", {"w": ("U8", [300000], bytes([i]) * 300000), f"only.{i}": ("U8", [9], bytes(9))})
    safetensors(pipe / "old.safetensors", {"head": ("U8", [1000], bytes(1000))})
    safetensors(pipe / "overlay.safetensors", {"head": ("U8", [1000], b"x" * 1000)})
    (pipe / "model.safetensors.index.json").write_text('{"weight_map": {"head": "overlay.safetensors"}}')
    published(east, pipe, 1)
    west.cli("subscribe", "policy", "--into", lab.dir / "into", "--version", 1, "--timeout", PATIENCE)
    expect_same(pipe, version_folder(lab.dir / "into", 1))
    (pipe / "model.safetensors.index.json").unlink()
    refused(east, 1, "--exclude", "publish", "policy", pipe, "--version", 2)
    east.cli("publish", "policy", pipe, "--version", 2, "--exclude", "old.safetensors")


@scenario
def a_gateway_may_restart_under_the_commands(lab):
    """P3 P6: the home gateway is killed while a publish waits for another shard, and the other site's while a follow waits: both go on."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    source = hugging_face(lab.dir / "source", 4)
    files = sorted(source.glob("*.safetensors"))
    into = lab.dir / "into"
    follower = Process("follow", [TOMBOLO, "subscribe", "policy", "--into", into, "--follow", "--quiet", "--gateway",
                                  f"unix:{west.session_socket}"], lab.dir / "follow.log")
    first = Process("shard0", [TOMBOLO, "publish", "policy", files[0], "--version", "1", "--run", "k", "--shard", "0/2", "--quiet",
                               "--gateway", f"unix:{east.session_socket}"], lab.dir / "shard0.log")
    lab.processes += [follower, first]
    wait_for("one shard is sealed", lambda: any(v["sealed_shards"] == 1 for v in east.versions()))
    wait_for("the follower is there", lambda: west.control("status")["sessions"])
    east.restart()
    west.restart()
    wait_for("the shard is sealed again", lambda: any(v["sealed_shards"] == 1 for v in east.versions()))
    east.cli("publish", "policy", files[1], "--version", "1", "--run", "k", "--shard", "1/2")
    expect("exit code of the first", first.ended(), 0)
    wait_for("the version is written", (version_folder(into, 1) / "STABLE").exists)
    for f in files:
        expect(f"{f.name} is byte-identical", filecmp.cmp(f, version_folder(into, 1) / f.name, shallow=False), True)
    follower.signal(signal.SIGTERM)
    expect("exit code of the follower", follower.ended(), 0)


def on_a_terminal(site, *args):
    """What a command writes to standard error when that is a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{site.session_socket}", TOMBOLO_CONTROL=str(site.control_socket))
    command = subprocess.Popen([str(TOMBOLO), *map(str, args)], env=env, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
        while data := os.read(ours, 4096):
            text += data
    os.close(ours)
    return text.decode(), command.wait(PATIENCE_S)


@scenario
def progress_is_for_terminals(lab):
    """P10: on a terminal publish and subscribe show how much, how fast and how long still, on one line that is gone at the end; elsewhere
    they say nothing before they are done."""
    east = lab.site("east", arena_mib=96)
    east.models["policy"] = dict(home="east")
    east.extra["fabric"] = {"host": "another", "pace_bytes_per_s": "4MiB"}  # by tcp, so that there is something to see for 3 s
    east.start()
    source, little = lab.dir / "m.safetensors", lab.dir / "little.safetensors"
    safetensors(source, {"w": ("U8", [12 << 20], bytes(12 << 20))})
    safetensors(little, {"w": ("U8", [1 << 16], bytes(1 << 16))})
    for args in (("publish", "policy", source, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "seen", "--version", 1)):
        text, code = on_a_terminal(east, *args)
        expect(f"exit code of {args[0]} ({text[-500:]!r})", code, 0)
        if not re.search(r"\r[^\r]* [1-9][0-9]? %  [0-9.]+ MB of 12\.6 MB  [0-9.]+ [kM]B/s  [0-9.:]+( s)? left\x1b\[K", text):
            raise Failed(f"{args[0]} on a terminal showed {text!r}")
        expect(f"the line of {args[0]} is gone", text.endswith("\r\x1b[K"), True)
    for args in (("publish", "policy", little, "--version", 2, "--quiet"), ("subscribe", "policy", "--into", lab.dir / "unseen", "--quiet"),
                 ("subscribe", "policy", "--into", lab.dir / "unseen", "--json")):
        done = east.cli(*args)
        expect(f"{args[0]} elsewhere", (done.stderr, done.stdout.count("\n")), ("", 0 if "--quiet" in args else 1))


@scenario
def a_gateway_that_is_not_there_is_told_of_at_once(lab):
    """P10: on a terminal publish and subscribe say that nobody answers, and what to do, while they go on trying; Ctrl-C ends that (130)."""
    little = lab.dir / "little.safetensors"
    safetensors(little, {"w": ("U8", [64], bytes(64))})
    for args in (("publish", "policy", little, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "into"),
                 ("publish", "policy", little, "--version", 1, "--json")):
        ours, theirs = pty.openpty()
        env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{lab.dir}/nobody.sock")
        command = subprocess.Popen([str(TOMBOLO), *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        text = b""
        if "--json" not in args:
            while b"Trying on for" not in text:
                text += os.read(ours, 4096)  # EIO if it ended without
            expect("what it says", b"nobody.sock" in text and b"No such file" in text and b"--gateway" in text, True)
        else:  # silent until the end: signals are its own once it looks for the gateway
            wait_for("it waits for the gateway", lambda: len(list(pathlib.Path(f"/proc/{command.pid}/task").iterdir())) > 1)
        command.send_signal(signal.SIGINT)
        expect(f"exit code of {args[0]} ({text!r})", command.wait(PATIENCE_S), 130)
        said = command.stdout.read()
        if "--json" in args:
            expect("json of an interrupt", (json.loads(said)["ok"], json.loads(said)["status"]), (False, "cancelled"))
        os.close(ours)


def unread_output_is_no_success(site):
    """A table or an answer that could not be written was not shown."""
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(TOMBOLO), "versions", *more], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                  check=False, env=dict(os.environ, TOMBOLO_CONTROL=str(site.control_socket)))
        expect(f"versions {more} into a full disk", (done.returncode != 0, "written" in done.stderr), (True, True))


@scenario
def refusals_have_their_exit_codes(lab):
    """P10: 1 refused, 2 usage, 3 away, 4 timeout, 5 denied; each with a sentence."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.models["secret"] = dict(home="east", publish=["unix:12345"], read=["unix:12345"])
    east.models["elsewhere"] = dict(home="west")
    east.peers["west"] = None
    east.start()
    good = hugging_face(lab.dir / "good", 1)
    bad = lab.dir / "bad.safetensors"
    bad.write_bytes(b"\x02\0\0\0\0\0\0\0{}x")
    into = lab.dir / "into"
    refused(east, 1, "bad.safetensors: 1 bytes behind the last tensor", "publish", "policy", bad, "--version", "1")
    refused(east, 1, "nothing.safetensors: No such file", "publish", "policy", lab.dir / "nothing.safetensors", "--version", "1")
    refused(east, 2, "--version", "publish", "policy", good)
    refused(east, 2, "--version takes a whole number", "publish", "policy", good, "--version", 1 << 63)
    refused(east, 2, "--run", "publish", "policy", good, "--version", "1", "--shard", "0/2")
    refused(east, 2, "I/N", "publish", "policy", good, "--version", "1", "--shard", "2/2", "--run", "k")
    refused(east, 2, "--into", "subscribe", "policy")
    refused(east, 2, "exclude each other", "subscribe", "policy", "--into", into, "--latest", "--follow")
    refused(east, 2, "need --follow", "subscribe", "policy", "--into", into, "--keep", "2")
    refused(east, 2, "need --follow", "subscribe", "policy", "--into", into, "--on-version", "true")
    refused(east, 2, "1 or more", "subscribe", "policy", "--into", into, "--follow", "--keep", "0")
    refused(east, 5, "peer_denied", "publish", "polcy", good, "--version", "1")  # who has no right is not told what there is
    refused(east, 1, "not_home", "publish", "elsewhere", good, "--version", "1")
    refused(east, 1, "the home of elsewhere is west, and this gateway is of east", "publish", "elsewhere", good, "--version", "1")
    for right, command in (("publish", ("publish", "secret", good, "--version", "1")), ("read", ("subscribe", "secret", "--into", into))):
        for words in ("peer_denied", f"models.secret.{right} of the gateway does not list unix:{os.getuid()}"):
            refused(east, 5, words, *command)
    refused(east, 1, 'there is no peer "north"; this gateway\'s are west', "limit", "north")
    east.cli("limit", "west")
    expect("a limit that is only read has not changed", east.daemon.logged("limit.changed"), [])
    refused(east, 4, "timeout", "subscribe", "policy", "--into", into, "--timeout", "5s")  # in it a busy machine opens a session
    refused(east, 4, "waiting for version 7: not within --timeout; `tombolo versions policy` lists",
            "subscribe", "policy", "--into", into, "--version", "7", "--timeout", "5s")
    (lab.dir / "circle").symlink_to("circle")
    for words in (("publish", "policy", lab.dir / "circle", "--version", "1"), ("subscribe", "policy", "--into", lab.dir / "circle")):
        refused(east, 1, "Too many levels of symbolic links (bad_argument)", *words)
    refused(east, 1, f"{into}/a/b: No such file", "subscribe", "policy", "--into", into / "a" / "b")
    refused(east, 1, f"{bad}/.tombolo-lock: Not a directory", "subscribe", "policy", "--into", bad)
    refused(east, 1, "not_found", "withdraw", "policy", "99")
    nowhere, made = lab.dir / "no-pki", lab.dir / "new-pki"
    refused(east, 1, "there is no CA here; `tombolo pki init` makes one", "pki", "issue", "tombolo://east/gw2", "--dir", nowhere)
    for code, words in ((0, "ca.crt goes to"), (1, "say another --dir")):
        refused(east, code, words, "pki", "init", "--dir", made, "--site", "east")
    for code, words in ((0, "gw2.crt"), (1, "say --out NAME")):
        refused(east, code, words, "pki", "issue", "tombolo://east/gw2", "--dir", made)
    refused(east, 1, "is not the CA of site west", "pki", "issue", "tombolo://west/gw", "--dir", made)
    failure = json.loads(refused(east, 1, "status", "withdraw", "policy", "99", "--json").stdout)
    expect("json of a failure", (failure["ok"], failure["status"]), (False, "not_found"))
    unread_output_is_no_success(east)
    expect("exit code of tombolod", east.daemon.terminate(), 0)
    refused(east, 3, "no gateway answers at", "status")
    started = time.monotonic()
    done = refused(east, 3, "gateway_away", "publish", "policy", good, "--version", "1", "--timeout", "1s")
    if "No such file" not in done.stderr or "does tombolod run there?" not in done.stderr:
        raise Failed(f"a gateway that is away: {done.stderr}")
    expect("the gateway is not waited for long", time.monotonic() - started < 30, True)


@scenario
def a_file_that_is_cut_short_ends_no_command(lab):
    """P10: Somebody truncates a file that is being published, before its bytes are digested or while the gateway reads them: the command names
    the file and exits as the manual says, no version of it is kept, and the next one is published."""
    east = lab.site("east", arena_mib=96)
    east.models["policy"] = dict(home="east")
    east.extra["fabric"] = {"host": "another", "pace_bytes_per_s": "4MiB"}  # by tcp, so that it is read for 3 s
    east.start()
    source, good = lab.dir / "m.safetensors", lab.dir / "good.safetensors"
    text = lab.dir / "tokenizer.json"
    safetensors(good, {"w": ("U8", [1 << 16], bytes(1 << 16))})

    def write():
        safetensors(source, {f"w{i}": ("U8", [4 << 20], bytes([i]) * (4 << 20)) for i in range(3)})
        text.write_bytes(b"x" * (1 << 20))

    def ends(process, codes, path):
        code = process.ended()
        said = json.loads(process.popen.stdout.read())
        expect(f"exit code of {process.name} ({said})", code in codes, True)
        if f"{path} was cut short meanwhile" not in said["error"]:
            raise Failed(f"{process.name} said {said['error']!r}")

    for path in (source, text):
        write()
        east.daemon.signal(signal.SIGSTOP)
        process = publishing(lab, east, f"before-{path.name}", source, text, "--version", 1)
        wait_for("it has opened the files and waits for the gateway", lambda p=process: len(list(pathlib.Path(f"/proc/{p.popen.pid}/task").iterdir())) > 1)
        os.truncate(path, 1000)
        east.daemon.signal(signal.SIGCONT)
        ends(process, (7,), path)
    write()
    process = publishing(lab, east, "while", source, text, "--version", 1)
    wait_for("the gateway has some of it", lambda: any(v["held_bytes"] > 0 for v in east.versions()))
    os.truncate(source, 5 << 20)
    ends(process, (6,), source)
    expect("versions that are kept", [v for v in east.versions() if v["state"] == "kept"], [])
    east.cli("publish", "policy", good, "--version", 2)


@scenario
def a_container_with_a_network_of_its_own_is_told(lab):
    """P10: A command that shares the unix socket alone, from a network namespace of its own, ends at once and says why; it hung without a word."""
    if os.getuid() != 0:
        raise Skipped("a network namespace takes root")
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    good = lab.dir / "good.safetensors"
    safetensors(good, {"w": ("U8", [1 << 16], bytes(1 << 16))})
    for args in (("publish", "policy", good, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "into")):
        done = subprocess.run(["unshare", "-n", str(TOMBOLO), *map(str, args), "--gateway", f"unix:{east.session_socket}"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        expect(f"exit code of {args[0]} ({done.stderr})", done.returncode, 1)
        if "network namespace of its own" not in done.stderr or "--fabric-address" not in done.stderr:
            raise Failed(f"{args[0]} said {done.stderr!r}")
    east.cli("publish", "policy", good, "--version", 1)  # beside the gateway all is as ever


@scenario
def a_container_with_an_address_is_read_by_it(lab):
    """P6: From a network namespace of its own, over the shared unix socket, --fabric-address is where a command is read; it reads from fabric.listen."""
    if os.getuid() != 0:
        raise Skipped("a network namespace takes root")
    name = f"tombolo-c{os.getpid()}"
    outside, inside = f"tc{os.getpid()}o", f"tc{os.getpid()}i"
    steps = (["ip", "netns", "add", name], ["ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name],
             ["ip", "addr", "add", "10.213.7.1/30", "dev", outside], ["ip", "link", "set", outside, "up"],
             ["ip", "-n", name, "addr", "add", "10.213.7.2/30", "dev", inside], ["ip", "-n", name, "link", "set", inside, "up"])
    try:
        for step in steps:
            subprocess.run(step, check=True, capture_output=True)
        east = lab.site("east")
        east.models["policy"] = dict(home="east")
        east.extra["fabric"] = {"listen": "10.213.7.1:0"}
        east.start()
        source = hugging_face(lab.dir / "source", 1)
        for args in (("publish", "policy", source, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "into", "--version", 1)):
            subprocess.run(["ip", "netns", "exec", name, str(TOMBOLO), *map(str, args), "--timeout", PATIENCE, "--fabric-address", "10.213.7.2:0",
                            "--gateway", f"unix:{east.session_socket}"], check=True, timeout=2 * PATIENCE_S)
        expect_same(source, version_folder(lab.dir / "into", 1))
        # P10: where the gateway listens for readers on loopback alone, it says so at once; it hung without a word.
        east.extra["fabric"] = {}
        east.restart()
        done = subprocess.run(["ip", "netns", "exec", name, str(TOMBOLO), "subscribe", "policy", "--into", lab.dir / "none", "--fabric-address",
                               "10.213.7.2:0", "--gateway", f"unix:{east.session_socket}"], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        expect(f"exit code ({done.stderr})", done.returncode, 1)
        if "set fabric.listen" not in done.stderr:
            raise Failed(f"subscribe said {done.stderr!r}")
        expect("the log says it, too", len(east.daemon.logged("session.refused", "reason=fabric_listen_is_loopback")), 1)
    finally:
        subprocess.run(["ip", "link", "del", outside], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@scenario
def a_site_alone_says_so(lab):
    """P6 P10: what needs another site is refused where there can be none; it does not wait for one."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    refused(east, 1, "has no `peers`", "adopt", "policy", lab.dir)
    refused(east, 1, 'there is no peer "west"; this gateway has none', "limit", "west")


@scenario
def hostile_safetensors_are_refused_with_their_place(lab):
    """P7 P10: a stranger's header is data: each lie is refused with file and place, exit code 1, and nothing is published."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()

    def tensor(first, end, shape=(4,), dtype="U8"):
        return json.dumps({"dtype": dtype, "shape": list(shape), "data_offsets": [first, end]})

    good = '"a":' + tensor(0, 4)
    lies = {  # name: (header text, bytes behind it, its stated length or None for the true one)
        "claims-200MB": ("{" + good + "}", 4, 200 << 20),
        "claims-more-than-any-file": ("{" + good + "}", 4, (1 << 64) - 1),
        "empty-header": ("", 4, 0),
        "no-json": ("a safetensors file", 4, None),
        "cut-json": ("{" + good, 4, None),
        "no-object": ("[1]", 4, None),
        "overlap": ("{" + good + ',"b":' + tensor(2, 6) + "}", 6, None),
        "hole": ("{" + good + ',"b":' + tensor(8, 12) + "}", 12, None),
        "behind-the-end": ("{" + good + ',"b":' + tensor(4, 8) + "}", 4, None),
        "backwards": ('{"a":' + tensor(4, 0) + "}", 4, None),
        "negative": ('{"a":' + tensor(-4, 0) + "}", 4, None),
        "shape-overflows": ('{"a":' + tensor(0, 4, (1 << 33, 1 << 33)) + "}", 4, None),
        "shape-and-bytes-differ": ('{"a":' + tensor(0, 4, (5,)) + "}", 4, None),
        "number-too-large": ('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551620]}}', 4, None),
        "same-name-twice": ("{" + good + ',"a":' + tensor(4, 8) + "}", 8, None),
        "unknown-dtype": ('{"a":' + tensor(0, 4, (4,), "Q 9") + "}", 4, None),
        "no-offsets": ('{"a":{"dtype":"U8","shape":[4]}}', 4, None),
        "nested-deep": ("[" * 100000, 4, None),
        "data-behind": ("{" + good + "}", 5, None),
    }
    for name, (text, data, stated) in lies.items():
        path = lab.dir / f"{name}.safetensors"
        header = text.encode()
        path.write_bytes((len(header) if stated is None else stated).to_bytes(8, "little") + header + bytes(data))
        done = refused(east, 1, f"{name}.safetensors:", "publish", "policy", path, "--version", "1")
        if len(done.stderr) > 2000:
            raise Failed(f"{name}: a refusal of {len(done.stderr)} characters")
    (lab.dir / "seven.safetensors").write_bytes(b"1234567")
    refused(east, 1, "seven.safetensors:", "publish", "policy", lab.dir / "seven.safetensors", "--version", "1")
    expect("versions", east.versions(), [])
    (lab.dir / "good.safetensors").write_bytes((len(good) + 2).to_bytes(8, "little") + b"{" + good.encode() + b"}" + bytes(4))
    east.cli("publish", "policy", lab.dir / "good.safetensors", "--version", "1")


@scenario
def a_version_awaits_those_who_follow(lab):
    """P10: how long it takes until all who are subscribed here use a version is told where somebody is, and ends when they do."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)

    def activating_s():
        return west.version(uid)["stages"]["activating_s"]
    expect("seconds where nobody follows", activating_s(), None)
    expect("and as text", "activating" in west.cli("versions").stdout, False)
    reader = Rollout(lab, west, "reader", path)
    first = wait_for("the reader is waited for", activating_s)
    wait_for("that takes time", lambda: activating_s() > first)
    reader.stage(uid)
    reader.activate(uid)
    took = wait_for("it is used", lambda: (lambda s: s if s == activating_s() else None)(activating_s()))
    reader.worker.ok("close")
    wait_for("the reader is gone", lambda: not west.control("status")["sessions"])
    expect("what it took is told all the same", activating_s(), took)


@scenario
def operators_see_and_withdraw(lab):
    """P2 P10: versions and status show what is there; withdraw reaches the other site, whose subscribers are told (exit code 6)."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    for n in (1, 2):
        east.cli("publish", "policy", hugging_face(lab.dir / f"s{n}", n), "--version", n)
    uid = east.versions()[-1]["uid"]
    west.wait_holds(uid)
    table = west.cli("versions", "policy").stdout
    if "1:2" not in table or "kept" not in table:
        raise Failed(f"versions said {table}")
    if not all(word in table for word in ("queued", "manifests", "landing")):
        raise Failed(f"versions says no stages: {table}")
    sent, landed = east.version(uid)["sent"], west.version(uid)
    if not 0 < sent["raw_bytes"] or sum(sent["chunks"].values()) == 0 or sent["bytes"] < sent["resent_bytes"]:
        raise Failed(f"what east sent of a version of {landed['bytes']}: {sent}")
    if sent["bytes"] - sent["resent_bytes"] > landed["wire_bytes"]:
        raise Failed(f"east sent {sent}, and {landed['wire_bytes']} came")
    expect("west sent nothing", (landed["sent"] or {"bytes": 0})["bytes"], 0)
    if not all(landed["stages"][key] >= 0 for key in ("queued_s", "manifests_s", "landing_s")) or landed["eta_s"] is not None:
        raise Failed(f"the stages of a whole version: {landed['stages']}, {landed['eta_s']}")
    if "tombolo://west/gw" not in west.cli("status").stdout:
        raise Failed("status does not name the gateway")
    expect("withdraw", "1:2" in east.cli("withdraw", "policy", "1:2").stdout, True)
    east.cli("withdraw", "policy", "1:2")
    wait_for("west knows", lambda: (west.version(uid) or {}).get("state") in (None, "withdrawn"))
    done = west.cli("subscribe", "policy", "--into", lab.dir / "into", "--version", "1:2", "--timeout", PATIENCE, check=False)
    expect(f"exit code for a withdrawn version ({done.stderr.strip()})", done.returncode, 6)
    west.cli("subscribe", "policy", "--into", lab.dir / "into", "--latest", "--timeout", PATIENCE)
    expect("the one before is the latest", (version_folder(lab.dir / "into", 1) / "STABLE").exists(), True)


class Quickstart:
    """deploy/quickstart with a folder of its own for what is temporary, whose name is short enough for the sockets in it."""

    def __init__(self, folder, *words):
        self.argv = [str(SOURCE / "deploy/quickstart"), "--build", str(BUILD), *words]
        self.folder, self.env = folder, dict(os.environ, TMPDIR=folder)

    def run(self, *words):
        return subprocess.run([*self.argv, *words], env=self.env, capture_output=True, text=True, timeout=240)

    @contextlib.contextmanager
    def in_the_middle(self):
        """One of many versions, of which the first has crossed; killed at the end if it still runs."""
        running = subprocess.Popen([*self.argv, "--versions", "9"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   start_new_session=True)
        try:
            expect("a first version", any(line.lstrip().startswith("0 ") for line in running.stdout), True)
            yield running
        finally:
            running.kill()
            running.stdout.close()
            running.wait()

    def left(self):
        """Folders, and processes that were begun in it."""
        return [*os.listdir(self.folder), *leavings.orphans("tombolo-quickstart"), *leavings.marked("TMPDIR", self.folder)]

    def leaves_nothing(self):
        wait_for(f"nothing is left: {self.left()}", lambda: not self.left())


class Gate:
    """Stands in front of a program: who calls it waits there until it is opened."""

    def __init__(self, folder, program):
        self.reached, self.opened = folder / f"{program}.reached", folder / f"{program}.opened"
        shim = folder / program
        shim.write_text(f'#!/bin/sh\n: >{self.reached}\nwhile ! [ -e {self.opened} ]; do sleep 0.02; done\nexec {shutil.which(program)} "$@"\n')
        shim.chmod(0o755)

    def wait(self, caller, timeout_s):
        wait_for("it comes so far", lambda: self.reached.exists() or caller.poll() is not None, timeout_s)
        if not self.reached.exists():
            raise Failed(f"it ended with {caller.returncode}: {caller.stderr.read()}")


class SitesOf:
    """The namespaces of a lab that another process has made."""

    def __init__(self, pid):
        said = subprocess.check_output(["ip", "netns", "list"], text=True)
        self.names = {name.rpartition("-")[2]: name for name in re.findall(rf"^tbw-{pid}-\S+", said, re.M)}

    def enter(self, site, argv):
        return ["ip", "netns", "exec", self.names[site], *argv]


def run_watched(quickstart, *words):
    """What it said, and every packet between its sites, before the first of which it asks jq where they are; at its end it removes its folders."""
    with tempfile.TemporaryDirectory() as folder:
        begin, end = (Gate(pathlib.Path(folder), program) for program in ("jq", "rm"))
        env = dict(quickstart.env, PATH=f"{folder}:{os.environ['PATH']}")
        running = subprocess.Popen([*quickstart.argv, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            begin.wait(running, PATIENCE_S)
            with Capture(SitesOf(running.pid), "east", "west") as seen:
                begin.opened.touch()
                end.wait(running, 240)
            end.opened.touch()
            out, err = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
            running.wait()
        return subprocess.CompletedProcess(running.args, running.returncode, out, err), seen


@scenario
def the_quickstart_ends_well(lab):
    """P1: deploy/quickstart: verdict good and 0; with a spoiled byte bad and 8; no process and no folder is left, also after SIGINT and SIGKILL."""
    with tempfile.TemporaryDirectory() as folder:
        quickstart = Quickstart(folder, "--bytes", "6M")
        done = quickstart.run("--versions", "2")
        expect(f"exit code ({done.stdout}{done.stderr})", done.returncode, 0)
        expect("verdict", "every byte equal" in done.stdout, True)
        done = quickstart.run("--spoil", *[str(p) for p in lab.weights(2)])
        expect(f"exit code of a spoiled one ({done.stdout}{done.stderr})", done.returncode, 8)
        expect("bad verdict", "DIFFERENT" in done.stdout and "BAD" in done.stdout, True)
        with quickstart.in_the_middle() as running:
            os.killpg(running.pid, signal.SIGINT)
            running.stdout.read()
            expect("exit code after SIGINT", running.wait(PATIENCE_S), 130)
        quickstart.leaves_nothing()
        with quickstart.in_the_middle() as running:
            os.killpg(running.pid, signal.SIGKILL)
        quickstart.leaves_nothing()


@scenario
def the_quickstart_over_a_wan_says_its_share(_lab):
    """P1 P8: deploy/quickstart --wan: every byte equal, goodput as a share of the link's rate; every packet between its sites belongs to a TLS connection;
    killed in the middle it leaves nothing, and runs again."""
    if why := wanlab.why_not():
        raise Skipped(why)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "near.yaml"
        # The way back has another rate, which is no measure of what crosses.
        path.write_text("sites: [east, west]\npaths:\n  - {from: west, to: east, rate: 60Mbit, delay: 5ms}\n  - {from: east, to: west, rate: 80Mbit, delay: 5ms}\n")
        with tempfile.TemporaryDirectory() as temporary:
            quickstart = Quickstart(temporary, "--wan", str(path), "--bytes", "16M")
            for number in (signal.SIGTERM, signal.SIGKILL):
                with quickstart.in_the_middle() as running:
                    running.send_signal(number)
                    expect("exit code", running.wait(PATIENCE_S), 143 if number == signal.SIGTERM else -9)
                wait_for("no namespace", lambda pid=running.pid: f"tbw-{pid}-" not in subprocess.check_output(["ip", "netns", "list"], text=True))
                done, seen = run_watched(quickstart, "--versions", "2")
                quickstart.leaves_nothing()
                rows = must_have_crossed(done)
                expect("what is no TLS", seen.complaints()[:1], [])
                expect("connections that were seen", len(seen.streams) > 2, True)
                passed = sum(stream.next for stream in seen.streams)
                expect(f"{passed} bytes passed, at least what is said of the wire: {rows}", passed >= sum(span_of(wire)[0] for _, wire, _ in rows), True)


def must_have_crossed(done):
    """A run over 80 Mbit/s: (logical, wire, seconds) of its versions. In bf16 a first version is at most 1.52 times as long as what crosses; a machine of which others have most is slow."""
    void = done.returncode == wanlab.VOID and "VOID" in done.stderr
    expect(f"exit code ({done.stdout}{done.stderr})", done.returncode == 0 or void, True)
    expect(f"verdict ({done.stdout})", "every byte equal" in done.stdout, True)
    said = re.search(r"(\d+) Mbit/s for the first, which is (\d+) % of the link's 80 Mbit/s \((\d+) % with what was on the wire\); (\d+) % for the best",
                     done.stdout)
    expect(f"goodput is told ({done.stdout})", said is not None, True)
    rate, first, wire, best = map(int, said.groups())
    expect(f"a share from 5 to 155 %: {said[0]}", 5 <= first <= 155 and abs(rate - 0.8 * first) <= 1 and best >= first, True)
    rows = re.findall(r"^ +\d+  +([\d.]+ k?M?B)  +([\d.]+ k?M?B) .*?  ([\d.]+ s)  ", done.stdout, re.MULTILINE)
    expect(f"two versions in the table ({done.stdout})", len(rows) == 2, True)
    shares = [percent_of(logical, time, 80e6) for logical, _, time in rows]
    expect(f"the first's share, by the table's bytes and seconds: {shares}, {said[0]}", within(first, *shares[0]), True)
    expect(f"the best's: {shares}, {said[0]}", within(best, *map(max, *shares)), True)
    # A byte that crossed took its time: no more of them than the link's rate allows (and the emulator's 2 % of it).
    expect(f"the wire's: {rows}, {said[0]}", within(wire, *percent_of(rows[0][1], rows[0][2], 80e6)) and wire <= 102, True)
    expect(f"bytes of bf16 on the wire: {rows}", 0.6 <= span_of(rows[0][1])[0] / span_of(rows[0][0])[0] <= 1.02, True)
    return rows


def span_of(text):
    """What "16.8 MB" and "0.63 s" may have been before they were rounded."""
    number, unit = text.split()
    scale = {"s": 1, "B": 1, "kB": 1e3, "MB": 1e6}[unit]
    half = 0.5 * 10 ** -len(number.partition(".")[2])
    return (float(number) - half) * scale, (float(number) + half) * scale


def percent_of(count, time, bit_per_s):
    """The least and the most that a rate may be of the link's."""
    (least, most), (soonest, latest) = span_of(count), span_of(time)
    return least * 800 / latest / bit_per_s, most * 800 / max(soonest, 1e-3) / bit_per_s


def within(percent, least, most):
    return least - 0.5 <= percent <= most + 0.5


@scenario
def config_check_says_where(lab):
    """P10: file:line:column for what is wrong, exit code 1; the daemon's own configuration is good."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    path = lab.dir / "east.yaml"
    path.write_text(east.config_text())
    lab.tombolo("config", "check", path)
    path.write_text(east.config_text().replace("gateway: gw", "gatewy: gw", 1))
    done = subprocess.run([str(TOMBOLO), "config", "check", str(path)], capture_output=True, text=True)
    expect("exit code", done.returncode, 1)
    expect(f"place ({done.stderr})", f"{path}:2:1:" in done.stderr, True)
    as_json = subprocess.run([str(TOMBOLO), "config", "check", "--json", str(path)], capture_output=True, text=True)
    expect("json", json.loads(as_json.stdout)["ok"], False)
    if "arena.bytes" not in lab.tombolo("config", "explain").stdout:
        raise Failed("config explain does not tell of arena.bytes")
    path.write_text(east.config_text())
    pki = lab.pki_dir("east")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "old", "--days", "1", "--start-days", "-3", "tombolo://east/gw")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "other", "tombolo://east/other")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "open", "tombolo://east/gw")
    (pki / "open.key").chmod(0o644)
    for name, words in (("old", "old.crt: the certificate has expired"), ("other", "the certificate is for tombolo://east/other"),
                        ("open", "open.key: mode 0644 lets others")):
        path.write_text(east.config_text().replace("/gw.", f"/{name}."))
        for more in ([], ["--json"]):
            done = subprocess.run([str(TOMBOLO), "config", "check", str(path), *more], capture_output=True, text=True)
            expect(f"config check with {name} ({done.stdout}{done.stderr})", (done.returncode, words in done.stdout + done.stderr), (1, True))
    path.write_text(east.config_text())
    explained = json.loads(lab.tombolo("config", "explain", "--json", path).stdout)
    page = (SOURCE / "docs/config.md").read_text()
    expect("keys as JSON", [row["key"] for row in explained["keys"]], re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    (bytes_row,) = (row for row in explained["keys"] if row["key"] == "arena.bytes")
    expect("a key", (bytes_row["type"], bytes_row["required"], bytes_row["default"], bytes_row["range"], bytes_row["unit"]),
           ("size", True, None, "8MiB to 64TiB", "bytes"))
    expect("values", [explained["values"][key] for key in ("site", "arena.bytes", "anchor.dir", "models.policy.home")],
           ["east", f"{east.arena_mib}MiB", None, "east"])
    expect("no values without a file", "values" in json.loads(lab.tombolo("config", "explain", "--json").stdout), False)


@scenario
def config_check_states_the_bounds_of_tables(lab):
    """P7: each table of a gateway has the bound that config check states of its configuration."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra = {"session": {"max": 77}}
    east.models["policy"] = dict(home="east", keep=31)
    east.models["other"] = dict(home="east")
    path = lab.dir / "stated.yaml"
    stated = {}
    for site in (east, west):
        path.write_text(site.config_text())
        stated[site.name] = json.loads(lab.tombolo("config", "check", "--json", path).stdout)["bounds"]
    text = lab.tombolo("config", "check", path).stdout
    up(east, west)
    shares = {"versions_of_a_model", "references_of_workers", "references_of_sites"}
    for site in (east, west):
        tables = {t["table"]: t["bound"] for t in site.control("status")["tables"]}
        expect(f"{site.name}: bounds", {k: v for k, v in stated[site.name].items() if k not in shares}, tables)
    for table, bound in stated["west"].items():
        if not table.endswith("_bytes"):
            expect(f"text has {table} ({text})", f" {table} {bound}" in text, True)
    for table in ("sessions", "members", "waits", "worker_exports", "versions", "versions_of_a_model"):
        expect(f"{table} follows from the configuration", stated["east"][table] != stated["west"][table], True)


def line_of(text, key):
    """From 1, of "section.key" or "section.name.key" in a configuration."""
    *sections, last = key.split(".")
    lines, at = text.splitlines(), 0
    for depth, word in enumerate([*sections, last]):
        indent = "  " * depth + word + ":"
        at = next(i for i in range(at, len(lines)) if lines[i].startswith(indent))
    return at + 1


def checked(lab, site):
    """What `config check` says of the site's file: exit code, errors and warnings, each (line, text), alike as text and as JSON."""
    path = site.dir / "tombolod.yaml"
    path.write_text(site.config_text())
    run = [str(TOMBOLO), "config", "check", str(path)]
    plain = subprocess.run(run, capture_output=True, text=True, timeout=60)
    said = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True, timeout=60).stdout)

    def steady(text):
        """Without what memory is free, which is another number each time."""
        return re.sub(r"[0-9]{7,}", "N", text)
    for begin, rows in (("", said["errors"]), ("warning: ", said["warnings"])):
        for row in rows:
            line = f"{begin}{path}:{row['line']}:{row['column']}: {row['text']}"
            expect(f"{line} in {plain.stderr}", steady(line) in steady(plain.stderr).splitlines(), True)
    expect("ok", said["ok"], plain.returncode == 0)
    return plain.returncode, said["errors"], said["warnings"]


def finds(lab, site, kind, key, words):
    """The check says one thing of the file, at that key; a start with it is refused by the daemon where it is an error."""
    code, *lists = checked(lab, site)
    errors, warnings = lists
    mine, others = (errors, warnings) if kind == "error" else (warnings, errors)
    expect(f"{key}: exit code ({lists})", code, 1 if kind == "error" else 0)
    expect(f"{key}: {kind}s ({lists})", [words in row["text"] for row in mine], [True])
    expect(f"{key}: the other list", [row for row in others if kind == "warning" or row["line"] != mine[0]["line"]], [])
    expect(f"{key}: its line", mine[0]["line"], line_of(site.config_text(), key))
    if kind == "error":
        site.start(wait=False)
        expect(f"{key}: a start", site.daemon.ended(), 1)
        return
    site.start()
    site.daemon.terminate()


def on_a_disk(folder):
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True).stdout.strip()
    return kind not in ("tmpfs", "ramfs", "hugetlbfs")


@scenario
def config_check_refuses_what_a_start_refuses(lab):
    """P10: errors and warnings are two lists, with line and column; what is an error ends a start, what is a warning does not."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    expect("a good one", checked(lab, east), (0, [], []))
    pki, none = lab.pki_dir("east"), lab.dir / "none"
    junk = lab.dir / "junk"
    junk.write_bytes(b"neither a store nor a certificate " * 100)
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "soon", "--days", "1", "tombolo://east/gw")
    with socket.create_server((lab.address, 0)) as taken:
        taken_at = f"{lab.address}:{taken.getsockname()[1]}"
        for section, key, value, words in (
                ("store", "path", none / "s.sqlite", "No such file or directory"), ("store", "path", junk, "not a database"),
                ("arena", "path", none / "a", "No such file or directory"), ("arena", "path", lab.dir, "Is a directory"),
                ("arena", "bytes", "32TiB", "this machine"), ("anchor", "dir", none / "a", "No such file or directory"),
                ("control", "socket", none / "c.sock", "its folder is not there"),
                ("session", "socket", none / "s.sock", "its folder is not there"),
                ("session", "listen", "192.0.2.1:7401", "no device of this machine has that address"),
                ("link", "listen", "192.0.2.1:7400", "no device of this machine has that address"),
                ("fabric", "listen", "192.0.2.1:7402", "no device of this machine has that address"),
                ("link", "congestion", "nosuch", "nosuch"), ("dns", "servers", "nowhere:x", "ADDRESS:PORT"),
                ("tls", "ca", junk, "junk"), ("session", "listen", f"{lab.address}:{east.port}", "is also")):
            east.extra = {section: {key: value}}
            shared = "is also" in words
            finds(lab, east, "error", "link.listen" if shared else f"{section}.{key}", words)
        east.extra = {"session": {"listen": taken_at}, "fabric": {"listen": f"{lab.address}:0"}}
        code, errors, warnings = checked(lab, east)
        expect("a port that is taken now", (code, errors, ["another process" in w["text"] for w in warnings]), (0, [], [True]))
    east.extra = {}
    east.peer_keys["west"] = {"congestion": "nosuch"}
    finds(lab, east, "error", "peers.west.congestion", "nosuch")
    east.peer_keys.clear()
    for section, key, value, words in (("tls", "cert", pki / "soon.crt", "UTC, in 23 hours"),
                                       ("session", "listen", f"0.0.0.0:{east.worker_port}", "fabric.listen")):
        east.extra = {section: {key: value}, "tls": {"key": pki / "soon.key", key: value}} if section == "tls" else {section: {key: value}}
        finds(lab, east, "warning", f"{section}.{key}", words)
    east.extra = {}
    east.models["other"] = dict(home="north")
    finds(lab, east, "warning", "models.other.home", '"north" is not one of peers')
    del east.models["other"]
    if on_a_disk(lab.dir):
        east.arena_path = lab.dir / "on-a-disk"
        finds(lab, east, "warning", "arena.path", "is on a disk")


@scenario
def config_check_looks_at_what_is_held(lab):
    """P10: versions that stand past the end of a smaller arena, and rows of the store that make no sense, end a start; check says so."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=64)
    east.start()
    for number in (1, 2):
        safetensors(lab.dir / "m.safetensors", {"w": ("U8", [20 << 20], bytes([number]) * (20 << 20))})
        east.cli("publish", "policy", lab.dir / "m.safetensors", "--version", number)
    expect("exit code", east.daemon.terminate(), 0)
    expect("as it is", checked(lab, east), (0, [], []))
    east.arena_mib = 32
    finds(lab, east, "error", "arena.bytes", "a version stands past byte")
    east.arena_mib = 64

    def ask(statement):
        with contextlib.closing(sqlite3.connect(east.dir / "store.sqlite")) as db:
            db.execute(statement)
            db.commit()
    for table, spoil, mend in (("run", "UPDATE run SET run_order=0", "UPDATE run SET run_order=1"),
                               ("version", "UPDATE version SET state=99", "UPDATE version SET state=3")):
        ask(spoil)
        finds(lab, east, "error", "store.path", f"a row of table {table} does not make sense")
        ask(mend)
    expect("mended", checked(lab, east), (0, [], []))
    east.start()
    safetensors(lab.dir / "m.safetensors", {"w": ("U8", [1000], bytes(1000))})
    east.cli("publish", "policy", lab.dir / "m.safetensors", "--version", 3)
    east.kill()
    files = {path: path.read_bytes() for path in east.dir.glob("store.sqlite*") if path.name != "store.sqlite-shm"}
    expect("a log was left", files[east.dir / "store.sqlite-wal"] != b"", True)
    expect("the log is sound", checked(lab, east), (0, [], []))
    expect("the files", {path: path.read_bytes() for path in files}, files)
    left_in_the_log(east, "UPDATE run SET run_order=0")
    finds(lab, east, "error", "store.path", "a row of table run does not make sense")


def left_in_the_log(site, statement):
    """The statement stands in the log beside the site's store, as a process leaves it that is killed behind it."""
    files = [site.dir / "store.sqlite", site.dir / "store.sqlite-wal"]
    with contextlib.closing(sqlite3.connect(files[0])) as db:
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute(statement)
        db.commit()
        left = [path.read_bytes() for path in files]
    (site.dir / "store.sqlite-shm").unlink(missing_ok=True)
    for path, content in zip(files, left):
        path.write_bytes(content)


@scenario
def a_running_gateway_is_no_error(lab):
    """What the gateway itself holds is a warning: the file can be checked while it runs."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    east.start()
    code, errors, warnings = checked(lab, east)
    expect("exit code and errors", (code, errors), (0, []))
    for key in ("store.path", "arena.path", "link.listen", "control.socket", "session.socket"):
        expect(f"{key} is held ({warnings})", any(w["text"].startswith(key) for w in warnings), True)
    expect("it goes on", east.control("status")["ok"], True)


@scenario
def help_is_the_table(lab):
    """P10: Each command's help has an example; the manual page and the completion are well-formed."""
    overview = lab.tombolo("help").stdout
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", overview, re.MULTILINE)
    for command in ("publish", "subscribe", "withdraw", "versions", "status", "streams", "limit", "pki issue", "config check"):
        expect(f"help lists {command}", command in commands, True)
    for command in commands:
        text = lab.tombolo(*command.split(), "--help").stdout
        expect(f"help of {command}", "usage: tombolo " + command in text and "Example:" in text, True)
    page = lab.tombolo("help", "--man").stdout
    expect("manual page", page.startswith(".TH TOMBOLO 1") and ".SH EXIT STATUS" in page, True)
    script = lab.dir / "completion"
    script.write_text(lab.tombolo("help", "--completion").stdout)
    ask = (f'source {script}; COMP_WORDS=(tombolo pki is); COMP_CWORD=2; _tombolo; echo "${{COMPREPLY[@]}}"; '
           'COMP_WORDS=(tombolo sub); COMP_CWORD=1; _tombolo; echo "${COMPREPLY[@]}"; '
           'COMP_WORDS=(tombolo pki issue --st); COMP_CWORD=3; _tombolo; echo "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    expect("completion", (done.stdout.split(), done.stderr), (["issue", "subscribe", "--start-days"], ""))
    expect("no command", subprocess.run([str(TOMBOLO), "publsh"], capture_output=True).returncode, 2)
    for argv in (["publsh"], ["publish", "policy", "x"], ["status", "--nope"], ["pki", "init"], ["subscribe", "policy"]):
        done = subprocess.run([str(TOMBOLO), *argv, "--json"], capture_output=True, text=True)
        said = json.loads(done.stdout)
        expect(f"{argv} as JSON", (done.returncode, said["ok"], said["status"]), (2, False, "bad_argument"))
    for argv, words in ((["publsh"], 'did you mean "publish"?'), (["pki", "foo"], 'no command "pki foo"; see `tombolo pki --help`'),
                        (["help", "publish", "x"], 'no command "publish x"')):
        done = subprocess.run([str(TOMBOLO), *argv], capture_output=True, text=True)
        expect(f"{argv} ({done.stderr.strip()})", (done.returncode, words in done.stderr), (2, True))
    for argv in (["--versions", "0"], ["--bytes", "lots"], ["--versions"], ["--build", lab.dir / "nowhere"], ["--nope"]):
        done = subprocess.run([SOURCE / "deploy/quickstart", "--build", BUILD, *argv], capture_output=True, text=True)
        expect(f"quickstart {argv} ({done.stderr.strip()})", (done.returncode, done.stderr.count("\n")), (2, 1))
    for argv in (["--nope"], [lab.dir / "no-such/out.svg"], [lab.dir / "out.svg", lab.dir / "no-such.yaml"]):
        done = subprocess.run([SOURCE / "sim/fleet/plot", *argv], cwd=lab.dir, capture_output=True, text=True)
        expect(f"plot {argv} ({done.stderr.strip()})", (done.returncode, done.stderr.count("\n"), (lab.dir / "--nope").exists()), (2, 1, False))
    for group, names in (("pki", ("pki init", "pki issue")), ("config", ("config check", "config explain"))):
        text = lab.tombolo(group, "--help").stdout
        expect(f"help {group}", lab.tombolo("help", group).stdout, text)
        expect(f"help of {group}", all("usage: tombolo " + name in text for name in names), True)
    explained = subprocess.run([str(TOMBOLOD), "--explain"], capture_output=True, text=True)
    expect("tombolod --explain", (explained.returncode, explained.stdout), (0, lab.tombolo("config", "explain").stdout))
    expect("version", lab.tombolo("--version").stdout.startswith("tombolo "), True)


if __name__ == "__main__":
    sys.exit(main())
