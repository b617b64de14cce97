"""Files and folders that a stranger prepared, for `publish`, `adopt` and a gateway's own files: none gets out, and none is believed (P8).

Covers: gateway/cli/bundle.c gateway/disk/folder_walk.c gateway/disk/given_files.c
"""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from adopting import adopt_files  # noqa: E402
from harness import Failed, expect, main, safetensors, scenario, wait_for  # noqa: E402

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
    """P8: a file of mode 0600 and another tree are not published by a link, whichever way it leads there."""
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
    expect("versions", east.versions(), [])
    print(f"tried {tried} links, followed 0")
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


if __name__ == "__main__":
    sys.exit(main())
