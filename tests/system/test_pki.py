#!/usr/bin/env python3
"""Certificates of a site's own authority by the command line; where links leave from; logs for programs.

Covers: gateway/cli/passphrase.c gateway/cli/pki_show_command.c gateway/cli/pki_authority_commands.c
Covers: gateway/cli/pki_options.c gateway/cli/pki_request_commands.c gateway/daemon/main.c base/log_form.c
Covers: wan/link/path/link_path.c
"""

import json
import os
import pty
import signal
import subprocess
import sys

from harness import (TOMBOLO, TOMBOLOD, Failed, Trainer, Veth, expect, main, scenario, up, wait_for)
from platform_certificates import platform_certificate


def tombolo(*argv, code=0, **options):
    """Without a terminal of its own, as in a unit."""
    done = subprocess.run([str(a) for a in (TOMBOLO, *argv)], capture_output=True, text=True, check=False, start_new_session=True, **options)
    expect(f"tombolo {argv[:2]}: {done.stdout}{done.stderr}", done.returncode, code)
    return done.stdout + done.stderr


def on_a_terminal(argv, *typed):
    """Runs it with a terminal of its own, and types each line once it was asked for. The text of the terminal, and the exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(argv[0], [str(a) for a in argv])
    shown = b""
    for line in typed:
        asked = shown.count(b": ")
        while shown.count(b": ") == asked and not shown.rstrip(b" ").endswith(b":"):
            shown += os.read(terminal, 4096)
        os.write(terminal, line)
        shown += b"|"
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:
        pass  # the other end has closed
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@scenario
def a_passphrase_is_asked_without_an_echo(lab):
    """P8: it is on no command line and on no screen; without it the authority signs nothing."""
    folder, secret = lab.dir / "pki", lab.dir / "secret"
    init = (TOMBOLO, "pki", "init", "--dir", folder, "--site", "east", "--passphrase")
    shown, code = on_a_terminal(init, b"correct horse\n", b"wrong horse\n")
    expect("two that differ", (code != 0, "are not the same" in shown, (folder / "ca.crt").exists()), (True, True, False))
    shown, code = on_a_terminal(init, b"correct horse\n", b"correct horse\n")
    expect(f"exit code: {shown}", code, 0)
    expect("what the terminal showed", "horse" in shown, False)
    expect("the key", "ENCRYPTED" in (folder / "ca.key").read_text(), True)
    issue = ("pki", "issue", "tombolo://east/gw", "--dir", folder)
    said = tombolo(*issue, code=1)
    expect(f"without a terminal: {said}", "--passphrase-file" in said, True)
    shown, code = on_a_terminal((TOMBOLO, *issue), b"\x03")
    expect("^C", (code, "no passphrase was given" in shown), (1, True))
    secret.write_text("wrong horse\n")
    said = tombolo(*issue, "--passphrase-file", secret, code=1)
    expect(f"others may read it: {said}", (folder / "gw.crt").exists(), False)
    secret.chmod(0o600)
    expect("a wrong one", "does not fit" in tombolo(*issue, "--passphrase-file", secret, code=1), True)
    secret.write_text("correct horse\n")
    tombolo(*issue, "--passphrase-file", "credential:secret", env={**os.environ, "CREDENTIALS_DIRECTORY": str(lab.dir)})
    shown, code = on_a_terminal((TOMBOLO, "pki", "renew", folder / "gw.crt", "--dir", folder), b"correct horx\x7fse\n")
    expect(f"a slip of the finger: {shown}", code, 0)


def rows(*argv):
    return json.loads(tombolo("pki", "show", *argv, "--json"))["certificates"]


@scenario
def a_table_says_what_certificates_are(lab):
    """P10: kind, identity, signer, days left and rights, and what asks for something."""
    east = lab.site("east")
    east.peers, east.models["policy"] = {"west": "gw.west.example:7400"}, dict(home="east", publish=["tombolo://east/worker/*"], publishers=["tombolo://east/publisher/p"])
    folder, listed = lab.pki_dir("east"), lab.dir / "revoked"
    for words in (("tombolo://east/worker/w", "--days", "13"), ("--publisher", "p"), ("tombolo://east/old", "--days", "1", "--start-days", "-2"),
                  ("tombolo://east/thief",)):
        lab.tombolo("pki", "issue", *words, "--dir", folder)
    lab.tombolo("pki", "revoke", folder / "thief.crt", "--list", listed)
    east.extra["tls"] = {"revoked": listed}
    config = lab.dir / "east.yaml"
    config.write_text(east.config_text())
    seen = {row["file"].rsplit("/", 1)[1]: row for row in rows(folder, "--config", config)}
    told = {name: (row["kind"], row["identity"], row["warning"], row["rights"]) for name, row in seen.items()}
    expect("the table", told, {
        "ca.crt": ("root", "east", "", []),
        "gw.crt": ("gateway", "tombolo://east/gw", "", ["this gateway", "read policy"]),
        "old.crt": ("gateway", "tombolo://east/old", "expired", ["read policy"]),
        "p.crt": ("publisher", "tombolo://east/publisher/p", "", ["read policy", "sign policy"]),
        "thief.crt": ("gateway", "tombolo://east/thief", "revoked", ["read policy"]),
        "w.crt": ("worker", "tombolo://east/worker/w", "renew", ["publish policy", "read policy"])})
    days = {name: seen[name]["days_left"] for name in ("w.crt", "p.crt", "old.crt")}
    if days["w.crt"] not in (12, 13) or days["p.crt"] not in (89, 90) or days["old.crt"] not in (-1, -2):
        raise Failed(f"days left: {days}")
    expect("who signed", {(row["signer"], row["signer_file"]) for row in seen.values()}, {("east", str(folder / "ca.crt"))})
    text = tombolo("pki", "show", folder / "w.crt")
    expect(f"as text: {text}", "tombolo://east/worker/w" in text and "renew" in text and "1 of 1" in text, True)
    expect("those of the configuration", len(rows("--config", config)), 3)
    for argv, code in (((), 2), ((lab.dir / "none",), 1), ((folder / "gw.key",), 1), (("--config", folder / "gw.crt"), 1)):
        tombolo("pki", "show", *argv, code=code)


@scenario
def a_platforms_certificate_has_the_identity_of_its_line(lab):
    """P8 P10: pki show reads tls.spiffe as the gateway does: rights and a revocation by the mapped identity."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", read=["tombolo://east/worker/rollout-*"])
    uri, platform = "spiffe://cluster.example/ns/rl/sa/rollout-3", lab.dir / "platform"
    platform_certificate(platform, uri)
    config, listed, revoked = (lab.dir / name for name in ("east.yaml", "spiffe", "revoked"))
    revoked.write_text("")

    def seen(*options):
        row, = rows(platform / "w.crt", *options)
        return row["kind"], row["identity"], row["spiffe"], row["warning"], row["rights"]

    expect("without a configuration", seen(), ("other", uri, uri, "", None))
    east.extra["tls"] = {"revoked": revoked}
    config.write_text(east.config_text())
    expect("without a list", seen("--config", config), ("other", uri, uri, "not-listed", []))
    east.extra["tls"]["spiffe"] = listed
    config.write_text(east.config_text())
    listed.write_text("spiffe://cluster.example/ns/rl/sa/rollout-*  tombolo://east/worker/rollout-*\n")
    worker = "tombolo://east/worker/rollout-3"
    expect("by its line", seen("--config", config), ("worker", worker, uri, "", ["read policy"]))
    said = tombolo("pki", "show", platform / "w.crt", "--config", config)
    expect(f"as text: {said}", worker in said and f"by its URI {uri}" in said and "rights: read policy" in said, True)
    lab.tombolo("pki", "revoke", worker, "--list", revoked)
    expect("its identity is revoked", seen("--config", config)[3], "revoked")
    listed.write_text("spiffe://cluster.example/ns/rl/sa/trainer  tombolo://east/worker/trainer\n")
    expect("of another line", seen("--config", config), ("other", uri, uri, "not-listed", []))
    listed.write_text("nonsense\n")
    said = tombolo("pki", "show", platform / "w.crt", "--config", config, code=1)
    expect(f"a list that the gateway refuses: {said}", str(listed) in said, True)


@scenario
def an_issuing_authority_is_revoked(lab):
    """P8 P9: west's gateway goes over to a certificate of an issuing authority while the link is up; a
    version crosses, signed by it. Once the authority is revoked, its certificates open nothing."""
    east, west, _ = lab.east_west(through_link=False)
    for site in (east, west):
        site.extra["link"] = {"down_ms": 60000}
    listed = lab.dir / "revoked"
    listed.write_text("")
    east.extra["tls"] = {"revoked": listed}
    up(east, west)
    root, issuing = lab.pki_dir("west"), lab.dir / "issuing"
    lab.tombolo("pki", "intermediate", "--root", root, "--dir", issuing)
    lab.tombolo("pki", "renew", root / "gw.crt", "--dir", issuing)
    expect("its chain", (root / "gw.crt").read_text().count("BEGIN CERTIFICATE"), 2)
    west.daemon.signal(signal.SIGHUP)
    wait_for("west has it", lambda: west.counters()["certificates_loaded"] >= 1)
    wait_for("the link goes over", lambda: west.daemon.logged("link.renewed") or east.daemon.logged("link.renewed"))
    west.wait_holds(Trainer(lab, east, lab.weights(1)[0]).publish(1))
    if east.daemon.logged("link.down") or west.daemon.logged("link.down"):
        raise Failed("the link was down")
    lab.tombolo("pki", "revoke", issuing / "ca.crt", "--list", listed)
    east.daemon.signal(signal.SIGHUP)
    wait_for("east shuts it out", lambda: east.link("west")["reason"] == "revoked")


WATCH = """
import socket, sys
seen = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
seen.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)  # SO_RCVBUFFORCE: it is read at the end alone
seen.bind(("wan0", 3))
seen.setblocking(False)
print("ready", flush=True)
sys.stdin.read()
found = {}
try:
    while True:
        p, of = seen.recvfrom(1 << 17)
        if of[1] != 0x0800 or p[9] != 6:
            continue
        at = (p[0] & 15) * 4
        way = socket.inet_ntoa(p[12:16]), "SYN" if p[at + 13] & 2 else "data" if len(p) > at + (p[at + 12] >> 4) * 4 else "ack"
        found.setdefault(str(way), []).append(p[1] >> 2)
except BlockingIOError:
    print({way: (sorted(set(v)), v[-1]) for way, v in found.items()})
"""


@scenario
def links_leave_from_their_source_with_their_dscp(lab):
    """P10: each packet that west sends, its SYN too, leaves from peers.east.source with peers.east.dscp;
    what east answers has its own value once it knows the peer. status says so."""
    east, west, _ = lab.east_west(through_link=False)
    with Veth() as net:
        source = "10.202.0.22"
        net.ip("-n", net.names["west"], "addr", "add", source + "/24", "dev", "wan0")
        east.live_in(net.enter("east", []), net.address("east"))
        west.live_in(net.enter("west", []), net.address("west"))
        west.peers["east"] = f"{net.address('east')}:{east.port}"
        west.peer_keys["east"], east.peer_keys["west"] = {"source": source, "dscp": 46}, {"dscp": 10}
        watch = subprocess.Popen(net.enter("east", [sys.executable, "-c", WATCH]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lab.after.callback(watch.kill)
        expect("the capture", watch.stdout.readline(), "ready\n")
        up(east, west)
        west.wait_holds(Trainer(lab, east, lab.weights(1)[0]).publish(1))
        expect("status", [(w.link(s)["source"], w.link(s)["dscp"]) for w, s in ((west, "east"), (east, "west"))], [(source, 46), (None, 10)])
        for site in (west, east):
            site.daemon.terminate()
        found = eval(watch.communicate("")[0])  # of our own program
    expect("where west's packets are from", {eval(way)[0] for way in found}, {source, net.address("east")})
    expect("west's", [found[str((source, kind))][0] for kind in ("SYN", "data")], [[46], [46]])
    expect("east's, before and behind the handshake", found[str((net.address("east"), "data"))], ([0, 10], 10))
    bad = lab.dir / "bad.yaml"
    west.peer_keys["east"] = {"source": "2001:db8::1"}
    bad.write_text(west.config_text())
    said = tombolo("config", "check", bad, code=1)
    expect(f"config check: {said}", "peers.east.source: 2001:db8::1 reaches no IPv4 address" in said, True)


@scenario
def each_line_of_a_log_is_an_object(lab):
    """P10: with --log json from the first line to the last, also where the configuration is refused. Where
    journald reads, each line has its priority."""
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.arguments, site.extra["log"] = ["--log", "json"], {"time": "true", "level": "debug"}
    site.start()
    site.cli("status")
    site.daemon.terminate()
    lines = [json.loads(line) for line in site.daemon.log_path.read_text().splitlines()]
    events = [line["event"] for line in lines]
    expect("its life", [event in events for event in ("start", "drain.begin", "stop")], [True] * 3)
    expect("fields of each", [line for line in lines if not {"event", "level"} <= set(line)], [])
    behind = lines[events.index("start"):]
    expect("times", [line for line in behind if len(line["time"]) != 24], [])
    expect("numbers", [type(line["pid"]) for line in lines if line["event"] == "start"], [int])
    config, log = lab.dir / "bad.yaml", lab.dir / "bad.log"
    config.write_text("site: \"a\\u202eb\"\nnonsense: {}\n")
    for options, parse in ((["--log", "json"], lambda text: json.loads(text)["level"]), ([], lambda text: text.split()[0])):
        with log.open("wb") as out:
            it = os.fstat(out.fileno())
            done = subprocess.run([TOMBOLOD, "--config", config, *options], stderr=out, check=False, env={**os.environ, "JOURNAL_STREAM": f"{it.st_dev}:{it.st_ino}"})
        expect("exit code", done.returncode, 1)
        events = [line for line in log.read_text().splitlines() if options or line.startswith("<")]
        expect("levels", {(line[:3], parse(line[3:])) for line in events} - {("<4>", "warn")}, {("<3>", "error")})
    expect("a wrong word", subprocess.run([TOMBOLOD, "--config", config, "--log", "xml"], capture_output=True, check=False).returncode, 2)


if __name__ == "__main__":
    sys.exit(main())
