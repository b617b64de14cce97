"""Files and folders that a stranger prepared, for `publish`, `adopt` and a gateway's own files: none gets out, and none is believed (P8).

Covers: base/private_file.c gateway/arena/arena_file.c gateway/store/store_file.c base/net/listen.c
Covers: gateway/cli/versions/bundle.c gateway/disk/folder_walk.c gateway/disk/given_files.c
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from adopting import adopt_files  # noqa: E402
from forger import denials  # noqa: E402
from harness import PATIENCE_S, SOURCE, TOMBOLOD, Failed, expect, main, safetensors, scenario, wait_for  # noqa: E402
from tally import tally  # noqa: E402

TENSOR = {"t": ("U8", [4], b"abcd")}


def home(lab):
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    return east.start()


def refused(site, named, *command):
    done = site.cli(*command, check=False)
    expect(f"exit code of {command[0]}", done.returncode, 1)
    if str(named) not in done.stderr:
        raise Failed(f"{command[0]} does not name {named}: {done.stderr}")


@scenario
def publish_follows_no_link_out_of_its_folder(lab):
    """P8: a file of mode 0600 and another tree are not published by a link, whichever way it leads there. Nor is what lies nine folders deep."""
    east = home(lab)
    folder, other = lab.dir / "given", lab.dir / "other"
    folder.mkdir()
    other.mkdir()
    secret = other / "secret"
    secret.write_text("of another")
    secret.chmod(0o600)
    safetensors(folder / "m.safetensors", TENSOR)
    tried = 0
    for name, to in [("absolute", secret), ("relative", "../other/secret"), ("tree", other), ("up", ".."), ("twice", "absolute-2"), ("process", "/proc/self/root/etc/passwd")]:
        if name == "twice":
            (folder / ".absolute-2").symlink_to(secret)
            to = ".absolute-2"
        (folder / name).symlink_to(to)
        refused(east, folder / name, "publish", "policy", "--version", "1", folder)
        refused(east, name, "adopt", "policy", folder)
        (folder / name).unlink()
        tried += 1
    deepest = folder.joinpath(*(f"d{i}" for i in range(9)))
    deepest.mkdir(parents=True)
    (deepest / "m.safetensors").write_bytes((folder / "m.safetensors").read_bytes())
    refused(east, "more than 8 deep", "adopt", "policy", folder)
    refused(east, "deep", "publish", "policy", "--version", "1", folder)
    shutil.rmtree(folder / "d0")
    expect("versions", east.versions(), [])
    tally("links out of a folder, and a folder that is too deep", tried + 1)
    (folder / "inside").symlink_to("m.safetensors")
    (folder / "inside").unlink()
    east.cli("publish", "policy", "--version", "1", folder)


@scenario
def a_cache_of_hugging_face_is_published_where_its_root_is_named(lab):
    """P8: its snapshots are links to blobs beside them; --follow-links names the folder of both, and nothing else is reached."""
    east = home(lab)
    cache = lab.dir / "models--org--name"
    snapshot = cache / "snapshots/0123"
    (cache / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    safetensors(cache / "blobs/abc", TENSOR)
    (snapshot / "m.safetensors").symlink_to("../../blobs/abc")
    refused(east, "m.safetensors", "publish", "policy", "--version", "1", snapshot)
    east.cli("publish", "policy", "--version", "1", "--follow-links", cache, snapshot)
    (snapshot / "config.json").symlink_to("/etc/passwd")
    refused(east, "config.json", "publish", "policy", "--version", "2", "--follow-links", cache, snapshot)


@scenario
def adopt_takes_descriptors_for_what_they_are(lab):
    """P7 P8: names without descriptors, descriptors without names, more than there is room for, and those that are no files."""
    lab.site("east")
    west = lab.site("west")
    west.models = {"policy": {"home": "east"}}
    west.peers = {"east": None}
    west.subscribe = [("policy", ["east"])]
    west.start()
    pid = west.control("status")["pid"]
    descriptors = pathlib.Path(f"/proc/{pid}/fd")
    plain = lab.dir / "plain"
    plain.write_text("{}")
    fd = os.open(plain, os.O_RDONLY)
    pipe = os.pipe()
    expect("by its path alone", west.control("adopt", model="policy", dir="/etc")["ok"], False)
    expect("no descriptor", adopt_files(west, None, names=["a"], fds=[])["ok"], False)
    expect("no name", adopt_files(west, None, names=[], fds=[fd])["ok"], False)
    expect("a name that is none", adopt_files(west, None, names=[1], fds=[fd])["ok"], False)
    expect("a name that is too long", adopt_files(west, None, names=["n" * 2000], fds=[fd])["ok"], False)
    before = len(list(descriptors.iterdir()))
    for _ in range(50):
        adopt_files(west, None, names=["a"], fds=[fd] * 200)
    wait_for("no descriptor of them stays", lambda: len(list(descriptors.iterdir())) <= before)
    expect("a pipe", adopt_files(west, None, names=["a.safetensors"], fds=[pipe[0]])["ok"], True)
    expect("it lives", west.control("status")["ok"], True)
    for one in (fd, *pipe):
        os.close(one)


@scenario
def no_file_of_another_user_is_taken(lab):
    """P8 P10: an arena, a store, a configuration or a socket that another user made first, or that others may use, is refused with the reason."""
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    east.extra["anchor"] = {"dir": lab.dir / "anchors"}
    nobody = 65534
    rows = [("arena", east.arena_path), ("store", east.dir / "store.sqlite")]
    tries = [(what, path, "others may use it", lambda p: p.chmod(0o666)) for what, path in rows]
    if os.getuid() == 0:
        tries += [(what, path, f"uid {nobody} owns it", lambda p: os.chown(p, nobody, nobody)) for what, path in rows]
    for what, path, why, change in tries:
        path.unlink(missing_ok=True)
        path.touch(0o600)
        change(path)
        ends_with(east, what, why)
        path.unlink()
    for what, path in rows:
        for _, other in rows:  # what a refused start left
            other.unlink(missing_ok=True)
        path.mkdir()
        ends_with(east, what, "irectory")
        path.rmdir()
        path.symlink_to(lab.dir / "elsewhere")
        ends_with(east, what, "symbolic")
        path.unlink()
    (lab.dir / "anchors").mkdir(exist_ok=True)
    (lab.dir / "anchors").chmod(0o777)
    ends_with(east, "anchor", "another user owns it, or others may write in it")
    (lab.dir / "anchors").chmod(0o700)
    east.control_socket.touch()
    ends_with(east, "control.socket", "something that is not a socket")
    east.control_socket.unlink()
    east.start()
    with_mode = lab.dir / "everybody.yaml"
    with_mode.write_text(east.config_text())
    with_mode.chmod(0o666)
    done = subprocess.run([TOMBOLOD, "--config", with_mode], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    expect("exit code with a configuration that all may write", done.returncode, 1)
    if "others may use it (mode 0666)" not in done.stderr:
        raise Failed(done.stderr)
    tally("files of another user", len(tries) + 7)


def ends_with(site, what, why):
    site.start(wait=False)
    expect(f"exit code of a gateway with a wrong {what}", site.daemon.popen.wait(PATIENCE_S), 1)
    text = site.daemon.log_path.read_text()
    if why not in text or "listens there" in text:
        raise Failed(f"{what}: the log does not say \"{why}\":\n{text}")


READS = ["status", "versions", "streams", "lag", "chains", "config", "events"]
CHANGES = ["withdraw", "pin", "unpin", "rollback", "limit", "adopt", "drain", "verify", "audit", "reload", "backup", "pause", "resume", "gc", "digests"]


@scenario
def control_read_answers_only_reads(lab):
    """P8: each command of the control socket is asked there. Those that read are answered, each other one is refused and counted."""
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    east.extra["control"] = {"read": lab.dir / "read.sock"}
    east.start()
    uid = [v["uid"] for v in east.versions()]
    operators, east.control_socket = east.control_socket, lab.dir / "read.sock"
    for cmd in READS:
        expect(f"{cmd} at control.read", east.control(cmd, model="policy")["ok"], True)
    for cmd in CHANGES:
        said = east.control(cmd, model="policy", version="1", peer="west", rate="none", files=[])
        expect(f"{cmd} at control.read", (said["ok"], said["status"]), (False, "peer_denied"))
    expect("a file at control.read", adopt_files(east, None, names=["a"], fds=[0])["ok"], False)
    expect("denied", east.counters()["denied"], len(CHANGES) + 1)
    source = (SOURCE / "gateway/daemon/control/site_status.c").read_text()
    known = set(re.findall(r'\{"([a-z]+)", \w+\}', source))
    expect("commands that this test has not tried", known - set(READS) - set(CHANGES), set())
    east.control_socket = operators
    expect("versions", [v["uid"] for v in east.versions()], uid)
    wait_for("each has its row in the record", lambda: {r["object"] for r in denials(east, "control")} == {*CHANGES})
    expect("lines tell of it", len(east.daemon.logged("control.refused", "reason=only_reads")) > 0, True)


if __name__ == "__main__":
    sys.exit(main())
