"""`tombolo config check` refuses what a start would refuse, and names the line (P10).

Covers: gateway/cli/config_commands.c gateway/config/config_checks.c gateway/config/bounds.c
Covers: gateway/config/start_checks.c gateway/config/config_complaints.c
Covers: gateway/config/config_explain.c gateway/cli/gateway_user.c
"""

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys

from harness import SOURCE, TOMBOLO, Failed, Skipped, expect, main, opened_to_others, safetensors, scenario, up, wait_for


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
    explained = json.loads(lab.tombolo("config", "explain", "--json").stdout)
    page = (SOURCE / "docs/config.md").read_text()
    expect("keys as JSON", [row["key"] for row in explained["keys"]], re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    (bytes_row,) = (row for row in explained["keys"] if row["key"] == "arena.bytes")
    expect("a key", (bytes_row["type"], bytes_row["required"], bytes_row["default"], bytes_row["range"], bytes_row["unit"]),
           ("size", True, None, "8MiB to 64TiB", "bytes"))
    shown = json.loads(lab.tombolo("config", "show", "--json", path).stdout)["values"]
    expect("values", [shown[key]["value"] for key in ("site", "arena.bytes", "anchor.dir", "models.policy.home")],
           ["east", f"{east.arena_mib}MiB", None, "east"])
    expect("where they come from", (shown["site"]["from"], shown["pin_max_s"]["from"]), (f"{path}:1", "default"))
    (one,) = json.loads(lab.tombolo("config", "explain", "--json", "peers.west.rate").stdout)["keys"]
    expect("one key", (one["key"], one["change"]), ("peers.SITE.rate", "live"))
    effective = lab.dir / "effective.yaml"
    effective.write_text(lab.tombolo("config", "show", "--effective", path).stdout)
    lab.tombolo("config", "diff", path, effective)


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
    text = lab.tombolo("config", "check", "--bounds", path).stdout
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
    """The answer of `config check` to the site's file: exit code, errors and warnings, each (line,
    text), alike as text and as JSON."""
    path = site.dir / "tombolod.yaml"
    path.write_text(site.config_text())
    run = [*site.prefix, str(TOMBOLO), "config", "check", str(path)]
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
    """The check says one thing of the file, at that key; a start with it is refused by the
    daemon where it is an error."""
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
    """P10: errors and warnings are two lists, with line and column; what is an error ends a
    start, what is a warning does not."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    expect("a good one", checked(lab, east), (0, [], []))
    pki, none = lab.pki_dir("east"), lab.dir / "none"
    junk = lab.dir / "junk"
    junk.write_bytes(b"neither a store nor a certificate " * 100)
    junk.chmod(0o600)
    fifo = lab.dir / "fifo"  # nobody writes there: an open that waits for that hangs
    os.mkfifo(fifo, 0o600)
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "soon", "--days", "1", "tombolo://east/gw")
    with socket.create_server((lab.address, 0)) as taken:
        taken_at = f"{lab.address}:{taken.getsockname()[1]}"
        for section, key, value, words in (
                ("store", "path", none / "s.sqlite", "No such file or directory"), ("store", "path", junk, "not a database"),
                ("arena", "path", none / "a", "No such file or directory"), ("arena", "path", lab.dir, "Is a directory"),
                ("arena", "bytes", "32TiB", "this machine"), ("audit", "file", none / "acts", "No such file or directory"),
                ("audit", "file", east.dir / "tombolod.yaml", "others may use it"), ("audit", "file", fifo, "No such device or address"),
                ("tls", "revoked", fifo, "is no regular file"), ("anchor", "dir", none / "a", "No such file or directory"),
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
    sealed = lab.dir / "sealed"  # a start makes a log beside its store
    sealed.mkdir()
    (sealed / "store.sqlite").touch(0o600)
    sealed.chmod(0o500)
    east.extra = {"store": {"path": sealed / "store.sqlite"}}
    east.prefix = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    finds(lab, east, "error", "store.path", "cannot make a log beside it: Permission denied")
    sealed.chmod(0o700)
    east.extra, east.prefix = {}, []
    if on_a_disk(lab.dir):
        east.arena_path = lab.dir / "on-a-disk"
        finds(lab, east, "warning", "arena.path", "is on a disk")


PATHS = ("control.socket", "control.read", "session.socket", "store.path", "audit.file", "arena.path", "anchor.dir",
         "tls.ca", "tls.cert", "tls.key", "tls.revoked", "tls.spiffe", "disk.key", "disk.key_old")
ADDRESSES = ("0.0.0.0:0", "192.0.2.1:7", "127.0.0.1", '"[::1]:0"', "127.0.0.1:99999", '""', "localhost:0", "255.255.255.255:7", "224.0.0.1:0")


def places(folder):
    """Paths at which something else stands, or nothing."""
    for name, mode in (("junk", 0o600), ("open", 0o644), ("read-only", 0o400)):
        (folder / name).write_bytes(b"junk\n" * 50)
        (folder / name).chmod(mode)
    os.mkfifo(folder / "fifo", 0o600)
    (folder / "link").symlink_to(folder / "junk")
    (folder / "dangling").symlink_to(folder / "nothing")
    return [folder, "/dev/null", '""', *(folder / name for name in (
        "junk", "open", "read-only", "fifo", "link", "dangling", "none/x", "junk/x", "l" * 256, "a/" * 60 + "x", "new"))]


def serves(site):
    """Whether a start with the site's file comes to serve; it does not stay."""
    site.start(wait=False)
    wait_for("it serves or ends", lambda: site.daemon.logged(" start site=") or not site.daemon.alive())
    return site.daemon.terminate() == 0


@scenario
def check_and_start_agree_on_each_place(lab):
    """P10: whatever a key names that has a place on this machine, the check says good where a start serves, and
    nowhere else."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=8)
    here = places(lab.dir)
    tries = [(key, place) for key in PATHS for place in here]
    tries += [(key, address) for key in ("session.listen", "link.listen", "fabric.listen") for address in ADDRESSES]
    differ = []
    for key, value in tries:
        section, last = key.split(".")
        east.extra = {section: {last: value}}
        for path in east.dir.glob("store.sqlite*"):
            path.unlink()
        good = checked(lab, east)[0] == 0
        if serves(east) != good:
            differ.append((key, str(value), "good" if good else "refused"))
    expect("places of which the check says other than the start", differ, [])


@scenario
def config_check_looks_at_held_versions(lab):
    """P10: versions that stand past the end of a smaller arena, and rows of the store that make
    no sense, end a start; check says so."""
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
    long = "printf('%.*c', 1000, 'x')"
    for table, spoil, mend in (("run", "UPDATE run SET run_order=0", "UPDATE run SET run_order=1"),
                               ("run_owner", f"UPDATE run_owner SET fenced_by={long}", "UPDATE run_owner SET fenced_by=''"),
                               ("withdrawn", f"INSERT INTO withdrawn SELECT 9, uid, model, run, run_order, 9, 1, {long} FROM version LIMIT 1",
                                "DELETE FROM withdrawn"),
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
    """A port that the gateway itself holds is a warning: the file can be checked while it runs."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    east.start()
    code, errors, warnings = checked(lab, east)
    expect("exit code and errors", (code, errors), (0, []))
    for key in ("store.path", "arena.path", "link.listen", "control.socket", "session.socket"):
        expect(f"{key} is held ({warnings})", any(w["text"].startswith(key) for w in warnings), True)
    said = subprocess.run([TOMBOLO, "config", "check", east.dir / "tombolod.yaml"], capture_output=True, text=True, check=True).stderr
    expect(f"as text it says that they are no fault: {said}", "a gateway runs with this store" in said, True)
    expect("it goes on", east.control("status")["ok"], True)


@scenario
def root_checks_as_the_gateways_user(lab):
    """P10: a gateway of the package runs as its own user. A file that it made is no fault for root; and a file that
    this user may not read is one, even if root may read it."""
    if os.getuid() != 0:
        raise Skipped("only root may become another user")
    # LeakSanitizer traces its process at exit, and Linux lets no process trace one that changed its
    # user.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    uid, pki = 65534, lab.pki_dir("east")
    for folder in (lab.dir, lab.arena_dir, pki.parent, pki, lab.pki_dir("west")):
        folder.chmod(0o755)
    opened_to_others(lab.dir, lab.arena_dir)
    east.start()
    expect("exit code", east.daemon.terminate(), 0)
    for path in (east.dir, *east.dir.iterdir(), east.arena_path, pki / "gw.key"):
        os.chown(path, uid, uid)
    expect("a gateway's own files", checked(lab, east), (0, [], []))
    (east.dir / "tombolod.yaml").chmod(0o600)  # root's, as it wrote it
    os.chown(east.dir / "tombolod.yaml", 0, 0)
    code, errors, warnings = checked(lab, east)
    expect(f"a file of root's: {warnings}", (code, errors, ["may not read this file" in w["text"] for w in warnings]), (0, [], [True]))
    (east.dir / "tombolod.yaml").chmod(0o644)
    roots = lab.dir / "roots"
    roots.mkdir(mode=0o755)
    for section, key, value in (("session", "socket", roots / "s.sock"), ("anchor", "dir", roots / "a"), ("audit", "file", roots / "acts")):
        east.extra = {section: {key: value}}
        code, errors, _ = checked(lab, east)
        expect(f"{section}.{key} in a folder of root's: {errors}", (code, [f"{section}.{key}" in e["text"] for e in errors]), (1, [True]))
    east.extra = {}
    theirs = lab.pki_dir("west") / "ca.crt"
    theirs.chmod(0o600)
    code, errors, _ = checked(lab, east)
    expect(f"what its user may not read: {errors}", (code, [f"{theirs}: Permission denied" in e["text"] for e in errors]), (1, [True]))
    theirs.chmod(0o644)
    os.chown(east.dir / "store.sqlite", 0, 0)
    code, errors, _ = checked(lab, east)
    expect(f"a store that root made: {errors}", (code, ["store.path" in e["text"] for e in errors]), (1, [True]))


if __name__ == "__main__":
    sys.exit(main())
