#!/usr/bin/env python3
"""`tombolo doctor` names what is wrong (P10): each fault is brought about for real, and its check,
and no other one of that kind, is a cross or asks for a change, with the line to change.

Covers: gateway/cli/doctor/doctor_command.c gateway/cli/doctor/doctor_show.c gateway/cli/doctor/doctor_facts.c
Covers: gateway/cli/doctor/doctor_dial.c gateway/cli/doctor/doctor_site_checks.c
Covers: gateway/cli/doctor/doctor_peer_checks.c gateway/cli/doctor/doctor_checks.c base/net/tls_padding.c
"""

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading

from harness import PATIENCE_S, TOMBOLO, Failed, Skipped, SmallMount, WallClock, expect, main, opened_to_others, scenario, up, wait_for
from lagging import far_pair

os.environ["TOMBOLO_DOCTOR_TIMES"] = str(max(1, round(PATIENCE_S / 10)))  # a check's time is of an idle machine, and not of this one
MACHINE = ("clock", "kernel", "memory", "devices", "disks")  # groups that say how this machine is, whatever the test does


def examine(site, *args, prefix=None, text=None):
    """Runs doctor with the site's file: its exit code, and rows."""
    path = site.dir / "tombolod.yaml"
    path.write_text(text or site.config_text())
    done = site.cli("doctor", "--json", "--config", path, *args, check=False, prefix=list(map(str, site.prefix if prefix is None else prefix)))
    try:
        said = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise Failed(f"doctor said {done.stdout!r} {done.stderr!r}, exit code {done.returncode}") from None
    rows = said["checks"]
    expect("counts", [said[k] for k in ("fine", "warnings", "wrong", "unknown", "not_checked")],
           [sum(r["mark"] == m for r in rows) for m in ("fine", "warning", "wrong", "unknown", "not-checked")])
    expect("exit code and ok", (done.returncode, said["ok"]), (1, False) if said["wrong"] else (0, True))
    for row in rows:
        if row["mark"] in ("wrong", "warning") and not row["advice"]:
            raise Failed(f"no advice: {row}")
    return rows


def of(rows, group, check):
    return [r for r in rows if (r["group"], r["check"]) == (group, check)]


def crosses(rows):
    """Those that a test brought about."""
    return sorted({(r["group"], r["check"]) for r in rows if r["mark"] == "wrong" and r["group"] not in MACHINE})


def names(rows, group, check, mark, words, advice):
    """That check has the mark, and a row with these words and this advice."""
    found = [r for r in of(rows, group, check) if r["mark"] == mark and words in r["text"] and advice in (r["advice"] or "")]
    if not found:
        raise Failed(f"{group} {check} says {of(rows, group, check)}, wanted {mark}: {words} -> {advice}")
    return found[0]


@scenario
def doctor_is_content_with_two_good_gateways(lab):
    """Each step of the way is fine, before the start and with gateways; nothing changes, and the
    peer has nothing to complain of."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=16)
    east.start()
    before = examine(west, "--pre")
    for check in ("tcp", "tls", "identity"):
        names(before, "peer", check, "fine", "", "")
    names(before, "peer", "mtu", "unknown", "14000 bytes pass, and none of ", "")  # loopback's packets are larger than any first message
    names(before, "peer", "dns", "not-checked", "is an address", "")
    names(before, "peer", "link", "not-checked", "--pre", "")
    expect("crosses before the start", crosses(before), [])
    expect("files that it made", sorted(p.name for p in west.dir.iterdir()), ["tombolod.yaml"])
    west.start()
    west.wait_link("east")
    rows = examine(west)
    expect("crosses", crosses(rows), [])
    for check in ("tcp", "tls", "identity", "link", "clock", "rights"):
        names(rows, "peer", check, "fine", "", "")
    names(rows, "gateway", "answer", "fine", "tombolod", "")
    names(rows, "memory", "memlock", "fine", "the gateway may lock", "")
    names(rows, "peer", "throughput", "unknown", "no probe", "")
    names(examine(east), "peer", "tcp", "not-checked", "the peer dials", "")
    complaints = [line for line in east.daemon.logged(" link.") if any(w in line for w in ("stranger", "refused", "garbled", "down", "twin"))]
    expect("what east complains of", complaints, [])
    expect("sessions", east.link("west")["sessions"], 1)
    text = west.cli("doctor", "--config", west.dir / "tombolod.yaml", check=False)
    if "peer east" not in text.stdout or "not known" not in text.stdout.splitlines()[-1]:
        raise Failed(f"as text: {text.stdout}{text.stderr}")


@scenario
def doctor_names_each_fault_of_a_path(lab):
    """Before the start: a wrong CA at either end, an expired certificate, DNS that is dead, a closed
    port, a wrong identity."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=16)
    pki = lab.pki_dir("west")
    other = lab.dir / "pki-other"
    lab.tombolo("pki", "init", "--dir", other, "--site", "east")
    names(examine(west, "--pre"), "peer", "tcp", "wrong", "refused", "systemctl start tombolod@east")
    east.start()
    good = west.config_text()
    place = str(west.dir / "tombolod.yaml")
    rows = examine(west, "--pre", text=good.replace(f"ca: {lab.pki_dir('east') / 'ca.crt'}", f"ca: {other / 'ca.crt'}"))
    expect("crosses of a wrong CA", crosses(rows), [("peer", "tls")])
    found = names(rows, "peer", "tls", "wrong", "is not accepted here", "peers.east.ca: the CA that signs at east")
    line = 1 + next(i for i, text in enumerate(good.splitlines()) if "ca:" in text and "pki-east" in text)
    expect("its line", found["advice"].startswith(f"{place}:{line}: "), True)
    rows = examine(west, "--pre", text=good.replace("  east:\n    gateway: gw", "  east:\n    gateway: else"))
    expect("crosses of a wrong identity", crosses(rows), [("peer", "identity")])
    names(rows, "peer", "identity", "wrong", "is tombolo://east/gw, and not tombolo://east/else", "peers.east.gateway: gw")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:  # bound, and never read
        nobody.bind(("127.0.0.1", 0))
        west.extra["dns"] = {"servers": f"127.0.0.1:{nobody.getsockname()[1]}"}
        west.peers["east"] = f"gw.east.test:{east.port}"
        rows = examine(west, "--pre")
    expect("crosses of dead DNS", crosses(rows), [("peer", "dns")])
    names(rows, "peer", "dns", "wrong", "no name server answered for gw.east.test", "dns.servers: ")
    names(rows, "peer", "tls", "not-checked", "has no address", "")
    del west.extra["dns"]
    west.peers["east"] = f"{lab.address}:{east.port}"
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "old", "--days", "1", "--start-days", "-3", "tombolo://west/gw")
    rows = examine(west, "--pre", text=west.config_text().replace("/gw.", "/old."))
    expect("crosses of an expired certificate", crosses(rows), [("certificates", "files"), ("certificates", "tls")])
    names(rows, "certificates", "files", "wrong", "tombolo://west/gw has expired", "tls.cert: tombolo pki renew")
    names(rows, "peer", "tls", "not-checked", "has expired", "")
    stranger = lab.dir / "pki-stranger"
    lab.tombolo("pki", "init", "--dir", stranger, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", stranger, "--out", "gw", "tombolo://west/gw")
    west.trust = stranger
    rows = examine(west, "--pre")
    expect("crosses of a wrong CA there", crosses(rows), [("peer", "tls")])
    names(rows, "peer", "tls", "wrong", "tombolo://east/gw does not accept the certificate of tombolo://west/gw", "at east: peers.west.ca: ")
    west.trust = pki
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "new", "tombolo://west/new")
    west.gateway = "new"
    rows = examine(west, "--pre")
    expect("crosses of a gateway that is no peer there", crosses(rows), [("peer", "identity")])
    names(rows, "peer", "identity", "wrong", "has no tombolo://west/new among its peers", "at east: peers.west.gateway: new")


@scenario
def doctor_names_a_port_that_says_nothing(lab):
    """A connection comes about, and nobody speaks; no step of the check waits for ever."""
    _, west, _ = lab.east_west(through_link=False, arena_mib=16)
    with socket.create_server((lab.address, 0)) as mute:
        west.peers["east"] = f"{lab.address}:{mute.getsockname()[1]}"
        rows = examine(west, "--pre")
    names(rows, "peer", "tcp", "fine", "answers", "")
    names(rows, "peer", "tls", "wrong", "no answer within 3 s", "peers.east.address")
    names(rows, "peer", "identity", "not-checked", "TLS did not come so far", "")
    names(rows, "peer", "mtu", "unknown", "in small ones neither", "")


def reset_each(listener, context):
    """Takes part in each handshake to its end, and then resets the connection."""
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        try:
            with context.wrap_socket(plain, server_side=True) as tls:
                tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            continue


@scenario
def doctor_takes_no_reset_for_a_yes(lab):
    """A dialler is open before the peer has judged its certificate. A peer that resets the
    connection then has not accepted it."""
    _, west, _ = lab.east_west(through_link=False, arena_mib=16)
    pki = lab.pki_dir("east")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "gw.crt", pki / "gw.key")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    with socket.create_server((lab.address, 0)) as listener:
        west.peers["east"] = f"{lab.address}:{listener.getsockname()[1]}"
        threading.Thread(target=reset_each, args=(listener, context), daemon=True).start()
        rows = examine(west, "--pre")
        listener.shutdown(socket.SHUT_RDWR)
    names(rows, "peer", "tcp", "fine", "answers", "")
    names(rows, "peer", "tls", "unknown", "ended before it accepted ours: ", "")
    names(rows, "peer", "identity", "unknown", "tombolo://east/gw ended the connection: ", "")


@scenario
def doctor_names_clocks_and_rights(lab):
    """With gateways: the peer's clock is ten minutes ahead; a right is missing, told at both ends,
    and before a start at the one that would have to grant it."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=16)
    east.models["policy"]["read"] = ["tombolo://north/*"]
    clock = WallClock(east)
    clock.forward(600 - clock.shift_s)
    names(examine(east, "--pre", prefix=()), "peer", "rights", "wrong", "may read 0 of the 1 models", "models.policy.read: add tombolo://west/gw")
    up(east, west)
    wait_for("both say what is denied", lambda: west.link("east")["denied"] and east.link("west")["refused_models"])
    rows = examine(west)
    expect("crosses", crosses(rows), [("peer", "clock"), ("peer", "rights")])
    names(rows, "peer", "clock", "wrong", "the clock of east is", "timedatectl set-ntp true")
    ahead = west.link("east")["clock_ahead_ms"]
    expect(f"ten minutes ({ahead})", 570000 < ahead <= 600000, True)
    names(rows, "peer", "rights", "wrong", "may not read there: policy", "at east: models.policy.read: add tombolo://west/gw")
    there = examine(east, prefix=())
    names(there, "peer", "rights", "wrong", "west asked for policy", "models.policy.read: add tombolo://west/gw")
    names(there, "peer", "clock", "wrong", "s behind", "timedatectl")
    west.kill()
    rows = examine(west)
    names(rows, "gateway", "answer", "wrong", "", "tombolo doctor --pre")
    names(rows, "peer", "link", "not-checked", "no gateway answered", "")


def in_a_namespace(flags, script, *values):
    """argv that runs what follows it there, once the script has changed it."""
    if os.geteuid() != 0:
        raise Skipped("only root makes these namespaces")
    return ["unshare", *flags, "sh", "-c", f'set -e; {script}; shift {len(values)}; exec "$@"', "sh", *map(str, values)]


@scenario
def doctor_names_what_the_kernel_lacks(lab):
    """Small tcp_wmem, no bbr, no huge pages, little locked memory."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    small = in_a_namespace(["-n"], 'echo "4096 16384 262144" > /proc/sys/net/ipv4/tcp_wmem')
    names(examine(east, "--pre", prefix=small), "kernel", "tcp_wmem", "wrong", "the third value of net.ipv4.tcp_wmem is 262144",
          "net.ipv4.tcp_wmem = 4096 65536 67108864")
    list_of = lab.dir / "congestion"
    list_of.write_text("reno cubic\n")
    proc = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    no_bbr = in_a_namespace(["-m"], f'mount --bind "$1" {proc}', list_of)
    names(examine(east, "--pre", prefix=no_bbr), "kernel", "congestion", "warning", "bbr is not offered by the kernel: links to peers 5 ms away", "modprobe tcp_bbr")
    east.extra["link"] = {"congestion": "bbr"}
    names(examine(east, "--pre", prefix=no_bbr), "kernel", "congestion", "wrong", "bbr is not offered by the kernel (reno cubic)", "modprobe tcp_bbr")
    del east.extra["link"]
    no_huge = [sys.executable, "-c", "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0; os.execvp(sys.argv[1], sys.argv[1:])"]
    names(examine(east, "--pre", prefix=no_huge), "memory", "hugepages", "warning", "no huge pages", "hugetlbfs")
    shell = ["prlimit", "--memlock=65536:65536"]  # of the unit it says nothing
    names(examine(east, "--pre", prefix=shell), "memory", "memlock", "unknown", "LimitMEMLOCK of its unit decides", "")


@scenario
def doctor_names_a_full_disk_and_a_wrong_owner(lab):
    """The disk of the store has no room; the arena belongs to another user."""
    east, _, _ = lab.east_west(through_link=False, arena_mib=16)
    disk = SmallMount(lab, east.dir / "state", "64m")
    east.extra["store"] = {"path": disk.dir / "store.sqlite"}
    roomy = of(examine(east, "--pre", prefix=disk.enter), "disks", "room")
    expect("with room", [r["mark"] for r in roomy], ["warning"])
    disk.fill()
    names(examine(east, "--pre", prefix=disk.enter), "disks", "room", "wrong", "0 B of", "store.path: make room")
    disk.make_room()
    if os.geteuid() != 0:
        raise Skipped("only root gives a file away")
    del east.extra["store"]
    east.start()
    east.daemon.terminate()
    rows = examine(east, "--pre")
    names(rows, "arena", "owner", "fine", "alone", "")
    os.chown(east.arena_path, 12345, -1)
    rows = examine(east, "--pre")
    expect("crosses", crosses(rows), [("arena", "owner"), ("arena", "room")])  # a start looks at it, too
    names(rows, "arena", "owner", "wrong", "belongs to uid 12345, and the gateway runs as root", "chown root")


@scenario
def doctor_says_what_it_did_not_see(lab):
    """No root and no gateway's user: what it may not look at is no tick; a file with a fault names
    its line, and the machine is looked at all the same."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=16)
    text = east.config_text().replace("gateway: gw", "gatewy: gw", 1)
    rows = examine(east, "--pre", text=text)
    names(rows, "configuration", "file", "wrong", "tombolod.yaml:2:1:", "")
    names(rows, "arena", "owner", "not-checked", "could not be read", "")
    names(rows, "memory", "memlock", "unknown", "LimitMEMLOCK", "")
    if os.geteuid() != 0:
        raise Skipped("only root becomes another user")
    os.chown(east.dir, 65534, -1)
    bound = ["setpriv", "--bounding-set=-setuid,-setgid"]  # root without the right to become another user
    rows = examine(east, "--pre", prefix=bound)
    for group, check in (("configuration", "start"), ("certificates", "files"), ("arena", "owner"), ("disks", "room"), ("kernel", "congestion")):
        names(rows, group, check, "unknown", "this process cannot become the gateway's user", "")
    os.chown(east.dir, 0, -1)
    east.start()
    for folder in (lab.dir, east.dir):
        folder.chmod(0o755)
    opened_to_others(lab.dir, TOMBOLO)
    east.control_socket.chmod(0o666)
    rows = examine(east, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    for group, check in (("configuration", "file"), ("certificates", "files"), ("arena", "owner"), ("disks", "room")):
        names(rows, group, check, "not-checked", "run it as root, or as that user", "")
    names(rows, "gateway", "answer", "fine", "", "")
    expect("crosses", crosses(rows), [("peer", "link")])  # west does not run
    done = west.cli("doctor", "--pre", "--config", west.dir / "none.yaml", check=False)
    expect("no file", done.returncode, 1)
    done = subprocess.run([str(TOMBOLO), "doctor", "--pre", "--peer", "north", "--config", str(east.dir / "tombolod.yaml"), "--json"],
                          capture_output=True, text=True)
    expect(f"a peer that is none ({done.stdout})", (done.returncode, json.loads(done.stdout)["status"]), (1, "not_found"))


def loses_over(lab, mtu, passes):
    _, east, west = far_pair(lab, mtu=mtu)
    east.start()
    rows = examine(west, "--pre")
    names(rows, "peer", "tcp", "fine", "answers", "")
    names(rows, "peer", "mtu", "wrong", f"those with {passes} bytes of payload pass", f"mtu {passes + 40}")


@scenario
def doctor_names_a_path_that_loses_large_packets(lab):
    """Packets over 1350 bytes vanish, and no router says so: handshakes pass."""
    loses_over(lab, 1350, 1200)


@scenario
def doctor_names_a_path_on_which_no_certificate_passes(lab):
    """Likewise packets over 700 bytes."""
    loses_over(lab, 700, 536)


if __name__ == "__main__":
    sys.exit(main())
