"""Certificates that an operator revokes while gateways run (P8, P10).

Covers: base/net/revoked.c base/net/tls_revoked.c gateway/daemon/certificates.c
Covers: gateway/config/gateway_tls.c gateway/cli/pki_commands.c gateway/daemon/sessions/sessions.c
"""

import signal
import sys
import time

from harness import Failed, Trainer, Worker, expect, main, scenario, up, wait_for
from lagging import causes, says


def listed(lab, site):
    """The site has a list of revoked certificates, which is empty."""
    path = lab.dir / f"{site.name}.revoked"
    path.write_text("")
    site.extra["tls"] = {"revoked": str(path)}
    return path


def revoke(lab, path, what):
    lab.tombolo("pki", "revoke", what, "--list", path)


@scenario
@causes("revoked")
def a_revoked_gateway_is_shut_out(lab):
    """P8 P10: east revokes west's certificate, without a signal. The link ends, and both say why.
    Once it is off the list west is back, and gets what it missed."""
    east, west, _ = lab.east_west(through_link=False)
    path = listed(lab, east)
    up(east, west)
    first = Trainer(lab, east, lab.weights(1)[0])
    west.wait_holds(first.publish(1))
    revoke(lab, path, lab.pki_dir("west") / "gw.crt")
    since = time.monotonic()
    wait_for("east has read the list", lambda: east.control("status")["certificates"]["revoked"] == 1)
    expect("within a minute", time.monotonic() - since < 60, True)
    says(east, "revoked", r".*the certificate of tombolo://west/gw is revoked \(tls\.revoked\).*")
    says(west, "revoked", r".*it is on the list of revoked certificates there.*")
    expect("status", (east.control("status")["certificates"]["revoked"], east.control("status")["links"][0]["reason"]), (1, "revoked"))
    uid = first.publish(2)
    path.write_text(f"# {path.read_text()}")
    west.wait_link("east")
    west.wait_holds(uid)


@scenario
def a_revoked_home_signs_no_more(lab):
    """P1 P2 P8: west takes nothing that home's revoked certificate signed, also from a relay that it trusts."""
    east, west, north = (lab.site(name) for name in ("east", "west", "north"))
    west.peers, east.peers = {"east": f"{lab.address}:{east.port}", "north": None}, {"west": None}
    north.peers, north.listen = {"west": f"{lab.address}:{west.port}"}, False
    east.models["policy"] = dict(home="east")
    for site, source in ((west, "east"), (north, "west")):
        site.models["policy"] = dict(home="east", home_ca=str(lab.pki_dir("east") / "ca.crt")) if site is north else dict(home="east")
        site.subscribe.append(("policy", [source]))
    path = listed(lab, north)
    path.write_text("tombolo://east/gw\n")
    for site in (east, west, north):
        site.start()
    north.wait_link("west")
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    west.wait_holds(uid)
    wait_for("north refuses what home signed", lambda: north.daemon.logged("statement.refused", "is revoked"))
    expect("north has", north.versions(), [])
    path.write_text("")
    north.daemon.signal(signal.SIGHUP)
    wait_for("north has read the list", lambda: north.counters()["certificates_loaded"] >= 1)
    north.wait_holds(uid)


@scenario
def a_revoked_worker_leaves_at_once(lab):
    """P8: its session ends without its lease, and its certificate opens no other. Another worker
    stays, and a list that cannot be read changes nothing."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", publish=["tombolo://east/worker/*"])
    east.extra["session"] = {"listen": f"{lab.address}:{east.worker_port}"}
    east.peers["west"] = None  # so that it has certificates
    lab.pki_dir("west")
    folder, path = lab.pki_dir("east"), listed(lab, east)
    for name in ("a", "b"):
        lab.tombolo("pki", "issue", "--dir", folder, f"tombolo://east/worker/{name}")
    east.start()
    a, b = (Worker(lab, n, east, gateway=f"{lab.address}:{east.worker_port}", ca=str(folder / "ca.crt"), cert=str(folder / f"{n}.crt"),
                   key=str(folder / f"{n}.key")) for n in ("a", "b"))
    for worker in (a, b):
        worker.ok("run", model="policy", key="k")
    path.write_text("nonsense\n")
    east.daemon.signal(signal.SIGHUP)
    wait_for("the list is refused", lambda: east.daemon.logged("tls.refused", ":1: is not sha256:HEX"))
    path.write_text("")
    revoke(lab, path, "tombolo://east/worker/a")
    wait_for("a is refused", lambda: east.daemon.logged("session.refused", "identity=tombolo://east/worker/a", "it is revoked"))
    wait_for("a has left", lambda: east.control("status")["session_count"] == 1)
    b.ok("run", model="policy", key="k")
    if east.daemon.logged("session.refused", "identity=tombolo://east/worker/b"):
        raise Failed("b was refused, too")


if __name__ == "__main__":
    sys.exit(main())
