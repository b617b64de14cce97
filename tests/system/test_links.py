#!/usr/bin/env python3
"""The words of a link about itself (P10): each reason for which two gateways do not come together is
brought about by real processes, and stands in `tombolo status --json` by its name, with a
sentence that names what and whom, at each end that can know it.

Covers: wan/link/path/link_why.c wan/link/path/link_segment.c wan/link/session/link_twin.c
Covers: gateway/daemon/links/link_events.c gateway/daemon/links/link_reports.c
Covers: gateway/daemon/control/link_status.c gateway/daemon/links/peer_rights.c
"""

import json
import re
import signal
import sys

import lagging
from harness import (Dns, Failed, Site, Trainer, WallClock, expect, main, read_and_compare, scenario, up, wait_for)
from lagging import causes, far_pair


def start(*sites):
    for site in sites:
        site.start()


def row(site, peer):
    """The peer's row of links[], as the command prints it."""
    links = json.loads(site.cli("status", "--json").stdout)["links"]
    (link,) = (link for link in links if link["site"] == peer)
    return link


def says(site, peer, reason, *words, state=None):
    """The row, once it has that reason and its sentence has the words."""
    def there():
        link = row(site, peer)
        good = link["reason"] == reason and all(w in link["error"] for w in words) and state in (None, link["state"])
        return link if good else None
    try:
        return wait_for(f"{site.name} says {reason} {words} of {peer}", there)
    except Failed:
        raise Failed(f"{site.name} says of {peer}: {row(site, peer)}") from None


def is_well(site, peer):
    """Up, and nothing of the time before stands there."""
    site.wait_link(peer)
    link = row(site, peer)
    expect("reason and error of a link that is up", (link["reason"], link["error"]), ("", ""))
    return link


@scenario
def a_link_says_dns_failed(lab):
    """The peer's name has no address, and then it has one."""
    east, west, _ = lab.east_west(through_link=False)
    dns = Dns({}, ttl_s=1)
    lab.after.callback(dns.close)
    west.extra["dns"] = {"servers": f"127.0.0.1:{dns.port}"}
    west.peers["east"] = f"gw.east.test:{east.port}"
    east.start()
    west.start()
    says(west, "east", "dns-failed", "tombolo://east/gw", "gw.east.test", state="dialling")
    first = row(west, "east")["since_s"]
    wait_for("it says since when", lambda: row(west, "east")["since_s"] > first > 0)
    text = west.cli("status").stdout
    if "dns-failed: tombolo://east/gw" not in text:
        raise Failed(f"tombolo status says: {text}")
    dns.names["gw.east.test"] = [lab.address]
    is_well(west, "east")


@scenario
def a_link_says_refused_by_peer(lab):
    """Nobody listens at the peer's address; then the peer is there."""
    east, west, _ = lab.east_west(through_link=False)
    west.start()
    says(west, "east", "refused-by-peer", "tombolo://east/gw", f"{lab.address}:{east.port}", "refused", state="dialling")
    east.start()
    is_well(west, "east")
    expect("at east", row(east, "west")["reason"], "")


@scenario
def a_link_says_tls_failed(lab):
    """Each end trusts another CA than signed the other's certificate: both name the other."""
    east, west, _ = lab.east_west(through_link=False)
    other = lab.dir / "pki-other"
    lab.tombolo("pki", "init", "--dir", other, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", other, "--out", "gw", "tombolo://west/gw")
    west.trust = other
    start(east, west)
    says(west, "east", "tls-failed", "tombolo://east/gw", "does not accept the certificate of tombolo://west/gw", state="refused")
    says(east, "west", "tls-failed", "tombolo://west/gw", "the peer's certificate: ", state="refused")


def lag_too(site, of, reason, peer, *words):
    """`lag` has the link's reason, with the same sentence, and no number: nobody knows how far
    that site is behind."""
    evidence = f"{peer}: .*" + ".*".join(re.escape(w) for w in words) + ".*"
    lagging.says(site, reason, evidence, of=of, known=False, versions=None, bytes=None)


@scenario
@causes("identity-mismatch")
def a_link_says_identity_mismatch(lab):
    """A gateway of the right site and CA, which is not the one that is configured."""
    east, west, _ = lab.east_west(through_link=False)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "other", "tombolo://west/other")
    west.gateway = "other"
    start(east, west)
    says(east, "west", "identity-mismatch", "tombolo://west/other came from", "tombolo://west/gw is expected", state="refused")
    lag_too(east, "west", "identity-mismatch", "west", "tombolo://west/other came from", "tombolo://west/gw is expected")
    says(west, "east", "refused-by-peer", "tombolo://east/gw has no tombolo://west/other among its peers")
    west.kill()
    west.gateway = "gw"
    east.kill()
    east.peers, west.peers, west.listen = {"west": f"{west.address}:{west.port}"}, {"east": None}, True
    config = east.config_text().replace("gateway: gw\n    ca", "gateway: else\n    ca", 1)
    east.config_text = lambda: config
    start(east, west)
    says(east, "west", "identity-mismatch", "the peer is tombolo://west/gw, expected tombolo://west/else", state="refused")
    lag_too(east, "west", "identity-mismatch", "west", "the peer is tombolo://west/gw, expected tombolo://west/else")


@scenario
@causes("clock-skew")
def a_link_says_clock_skew(lab):
    """West's clock is days behind, so east's certificate is not valid yet there."""
    east, west, _ = lab.east_west(through_link=False)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "early", "--days", "30", "--start-days", "-9", "tombolo://west/gw")
    for name in ("crt", "key"):
        (pki / f"early.{name}").replace(pki / f"gw.{name}")
    clock = WallClock(west, dates=True)
    clock.forward(-3 * 24 * 3600)
    start(east, west)
    says(west, "east", "clock-skew", "tombolo://east/gw", "not yet valid", "here it is 20", state="refused")
    lag_too(west, "west", "clock-skew", "east", "not yet valid", "here it is 20")
    clock.forward(-clock.shift_s)
    is_well(west, "east")


@scenario
@causes("twin-identity")
def a_link_says_twin_identity(lab):
    """P6: a second gateway with west's identity. The first keeps its session, and each end says
    what happened; once the first is killed the second takes its place at once."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    sessions = row(east, "west")["sessions"]
    twin = Site(lab, "west-again")
    twin.of, twin.trust, twin.gateway, twin.listen = "west", west.trust, "gw", False
    twin.peers, twin.subscribe, twin.models = west.peers, west.subscribe, west.models
    lab.sites.append(twin)
    twin.start()
    says(twin, "east", "twin-identity", "another gateway is tombolo://west/gw, too", "tombolo://east/gw", state="refused")
    lag_too(twin, "west", "twin-identity", "east", "another gateway is tombolo://west/gw, too")
    says(east, "west", "twin-identity", "two gateways are tombolo://west/gw", "stop one of the two", state="up")
    tries = twin.counters()["links_twins"]
    wait_for("it was refused again and again", lambda: twin.counters()["links_twins"] > tries + 3)
    expect("west", (row(west, "east")["state"], row(west, "east")["sessions"], west.counters()["links_down"]), ("up", sessions, 0))
    (line,) = east.daemon.logged("link.twin")
    if not all(f" {key}=" in line for key in ("address", "twin", "life", "twin_life")):
        raise Failed(f"east says: {line}")
    expect("lines at the twin", len(twin.daemon.logged("link.twin", "by=peer", "action=stop_one_of_the_two")), 1)
    west.kill()
    is_well(twin, "east")
    is_well(east, "west")


def crosses(lab, east, west):
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path)


@scenario
@causes("mtu")
def a_link_says_mtu(lab):
    """P6: full segments vanish, handshakes and heartbeats pass. Each end names it, also as what
    holds the version, the segments shrink, and the version crosses."""
    wan, east, west = far_pair(lab, mtu=1350, rate="16Mbit")
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    for site, peer in ((west, "east"), (east, "west")):
        lagging.says(site, "mtu", f"{peer}: large packets do not pass .* segments of 1200 bytes .*", head="1:1", versions=1)
    wan.turn("east", "west", rate="120Mbit")
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path)
    for site, peer, by in ((east, "west", "us"), (west, "east", "peer")):
        says(site, peer, "mtu", f"tombolo://{peer}/gw", "segments of", state="up")
        lines = site.daemon.logged("link.mtu", f"by={by}", "stalled_segment_bytes=", " segment_bytes=1200")
        expect(f"lines at {site.name}", len(lines), 1)


@scenario
def a_home_that_dials_makes_smaller_segments(lab):
    """P6: likewise where the sender made the connections."""
    _, east, west = far_pair(lab, home_dials=True, mtu=1350)
    up(east, west)
    crosses(lab, east, west)
    says(east, "west", "mtu", "tombolo://west/gw", "segments of 1200 bytes", state="up")
    says(west, "east", "mtu", "tombolo://east/gw", "segments of 1200 bytes", state="up")


@scenario
def a_handshake_that_does_not_fit_is_made_to(lab):
    """P6: not even the certificates pass. Smaller segments are tried, the session comes up with
    the first that fit, and both ends say so."""
    _, east, west = far_pair(lab, mtu=700)
    up(east, west)
    says(west, "east", "mtu", "segments of 536 bytes", state="up")
    says(east, "west", "mtu", "segments of 536 bytes", state="up")
    crosses(lab, east, west)


@scenario
def a_slow_peer_is_no_mtu(lab):
    """A gateway that is stopped while it is dialled opens no connection either, and once it goes
    on nobody says mtu."""
    _, east, west = far_pair(lab)
    east.start()
    east.daemon.stop()
    west.start()
    wait_for("attempts with smaller segments stall, too", lambda: (row(west, "east")["error"] or west.daemon.logged("link.dial_failed")))
    east.daemon.signal(signal.SIGCONT)
    is_well(west, "east")
    crosses(lab, east, west)
    expect("west says", (row(west, "east")["reason"], west.daemon.logged("link.mtu")), ("", []))


@scenario
def a_link_says_that_a_site_may_not_read(lab):
    """P8: home's `read` lacks west: both ends name the model; with the right, the list is empty."""
    east, west, _ = lab.east_west(through_link=False)
    east.models["policy"]["read"] = ["tombolo://north/*"]
    up(east, west)
    wait_for("west says so", lambda: row(west, "east")["denied"] == ["policy"])
    wait_for("east says so", lambda: row(east, "west")["refused_models"] == ["policy"])
    text = west.cli("status").stdout
    if "may not read there: policy" not in text:
        raise Failed(f"tombolo status says: {text}")
    expect("the link is well", (row(west, "east")["state"], row(west, "east")["reason"]), ("up", ""))
    east.kill()
    del east.models["policy"]["read"]
    east.start()
    wait_for("nothing is denied", lambda: row(west, "east")["state"] == "up" and row(west, "east")["denied"] == [])
    wait_for("nothing is refused", lambda: row(east, "west")["refused_models"] == [])


if __name__ == "__main__":
    sys.exit(main())
