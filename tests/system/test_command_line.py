"""`tombolo publish` and `tombolo subscribe` between two sites: files in at one site, the same files
out at the other.

Covers: gateway/cli/tombolo.c gateway/cli/versions/publish_command.c
Covers: gateway/cli/versions/publish_run.c
Covers: gateway/cli/versions/subscribe_command.c gateway/cli/gateway_session.c
Covers: gateway/cli/operator/operator_commands.c gateway/cli/versions/bundle.c
Covers: gateway/cli/versions/unbundle.c
"""

import contextlib
import filecmp
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

from bundles import expect_same, hugging_face, refused, result
from harness import (PATIENCE, TOMBOLO, Failed, Process, Rollout, Trainer, Worker, expect, main,
                     safetensors, scenario, up, version_folder, wait_for)


@scenario
def a_folder_crosses_byte_for_byte(lab):
    """P1: subscribe writes what publish read, header padding, empty files and folders
    included; the marker comes last."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    source = hugging_face(lab.dir / "source", 1)
    out = json.loads(east.cli("publish", "policy", source, "--version", "7", "--json").stdout)
    expect("result", (out["ok"], out["run"], out["number"], out["files"]), (True, 1, 7, 6))
    into = lab.dir / "into"
    got = result(west.cli("subscribe", "policy", "--into", into, "--version", "7", "--json", "--timeout", PATIENCE).stdout)
    folder = version_folder(into, 7)
    expect("folder", got["folder"], str(folder))
    expect_same(source, folder)
    marker = json.loads((folder / "STABLE").read_text())
    expect("marker", (marker["uid"], marker["number"], marker["run"]), (out["uid"], 7, 1))
    # Asked again, nothing is fetched and nothing is written.
    before = (folder / "STABLE").stat().st_mtime_ns
    again = result(west.cli("subscribe", "policy", "--into", into, "--latest", "--json").stdout)
    expect("was there", (again["was_there"], (folder / "STABLE").stat().st_mtime_ns), (True, before))
    # A folder without a tensor is a version, too.
    notes = lab.dir / "notes"
    notes.mkdir()
    (notes / "README.md").write_text("no weights here\n")
    east.cli("publish", "policy", notes, "--version", "8")
    west.cli("subscribe", "policy", "--into", into, "--version", "8", "--timeout", PATIENCE)
    expect_same(notes, version_folder(into, 8))


@scenario
def follow_writes_each_version_and_ends_on_a_signal(lab):
    """P2: The newest, then each newer one; standard output has a line a version; SIGINT ends it
    with 0."""
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
    expect("numbers", [line["number"] for line in lines if "progress" not in line], [1, 2, 3])


def publishing(lab, site, name, *args):
    process = Process(name, [TOMBOLO, "publish", "policy", *map(str, args), "--json", "--gateway", f"unix:{site.session_socket}"],
                      lab.dir / f"{name}.log", stdout=subprocess.PIPE)
    lab.processes.append(process)
    return process


def published(site, folder, number, *args):
    return json.loads(site.cli("publish", "policy", folder, "--version", number, "--json", *args).stdout)


@scenario
def a_new_run_begins_on_purpose_alone(lab):
    """P2: A number that is not above the newest is refused, and so is a key that nobody used;
    --new-run starts a run and says what it shut out."""
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
    """P2: A trainer that has begun its run and published nothing yet: a number below the newest
    is refused all the same; its library says what the newest is."""
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
        got = result(east.cli("subscribe", "policy", "--into", into, "--version", wanted, "--json", "--timeout", PATIENCE).stdout)
        expect(f"folder of {wanted}", got["folder"], str(folder))
        expect_same(names[key], folder)
    # A key of one's own: with --new-run it starts a run, the same key joins it, the old one is shut
    # out (P2).
    more = hugging_face(lab.dir / "more", 9)
    expect("run of a new key", published(east, more, 1, "--run", "mine", "--new-run")["run"], 3)
    expect("run of that key", published(east, more, 2, "--run", "mine")["run"], 3)
    published(east, more, 1, "--run", "other", "--new-run")
    refused(east, 1, "fenced", "publish", "policy", more, "--version", 3, "--run", "mine")
    # The audit record names who opened each run, by what the socket proved (P8, P10).
    with contextlib.closing(sqlite3.connect(east.dir / "store.sqlite")) as store:
        opened = store.execute("SELECT identity, COUNT(DISTINCT object) FROM record WHERE action = 'run.open' AND result = 'opened' GROUP BY identity").fetchall()
        later = store.execute("SELECT DISTINCT identity FROM record WHERE action LIKE 'run.%' AND result <> 'opened'").fetchall()
    expect("who opened the runs", opened, [(f"unix:{os.getuid()}", 4)])
    expect("who it was when others had published in them", later, [(f"unix:{os.getuid()}",)])


@scenario
def shards_from_several_processes_are_one_version(lab):
    """P2: Each process gives its files; the version is kept when all have come, and arrives as
    one folder."""
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
    """P1: Two ranks give a file of one name. Equal bytes are one file; others, under an equal
    header, are refused when they are published."""
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
    """P1: A folder of components whose tensors have equal names, and an overlay checkpoint,
    arrive as they were."""
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
    """P3 P6: the home gateway is killed while a publish waits for another shard, and the other
    site's while a follow waits: both go on."""
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


@scenario
def a_file_that_is_cut_short_ends_no_command(lab):
    """P10: Somebody truncates a file that is being published, before its bytes are digested or
    while the gateway reads them: the command names the file and exits as the manual says, no
    version of it is kept, and the next one is published."""
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
def hostile_safetensors_are_refused_with_their_place(lab):
    """P7 P10: a stranger's header is data: each lie is refused with file and place, exit code 1,
    and nothing is published."""
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
def a_version_awaits_its_followers(lab):
    """P10: how long it takes until all who are subscribed here use a version is told where
    somebody is, and ends when they do."""
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
    """P2 P10: versions and status show what is there; withdraw reaches the other site, whose
    subscribers are told (exit code 6)."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    for n in (1, 2):
        east.cli("publish", "policy", hugging_face(lab.dir / f"s{n}", n), "--version", n)
    uid = east.versions()[-1]["uid"]
    west.wait_holds(uid)
    table = west.cli("versions", "policy").stdout
    if "1:2" not in table or "kept" not in table:
        raise Failed(f"versions said {table}")
    wide = west.cli("versions", "policy", "-o", "wide").stdout
    if not all(word in wide for word in ("queued", "manifests", "landing")):
        raise Failed(f"versions says no stages: {wide}")
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


if __name__ == "__main__":
    sys.exit(main())
