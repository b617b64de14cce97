"""A home whose peers' keys the attacker has: right connections of them, and certificates that are wrong in one thing."""

import json
import struct

from certificates import URI, Authority, wrong_names
from harness import expect
from hostile import HELLO, Connection, Ended, frame, link_hello, tls


class Forger:
    """East's gateway trusts the CA of west for west and that of north for north; this has the keys of all of them, and more."""

    def __init__(self, lab):
        self.lab = lab
        self.west, self.north = Authority(lab.dir / "pki-west", "west"), Authority(lab.dir / "pki-north", "north")
        self.east, self.other = Authority(lab.dir / "pki-east", "east"), Authority(lab.dir / "pki-other", "west")
        for authority, site in ((self.west, "west"), (self.north, "north"), (self.east, "east")):
            authority.issue("gw", (URI, f"tombolo://{site}/gw".encode()))
            lab._pki[site] = authority.folder

    def certificates(self, authority, site, gateway, others):
        """{what is wrong: (certificate, key)} where `authority` is trusted for that site."""
        right = f"tombolo://{site}/{gateway}"
        found = {what: authority.issue(f"{site}-{gateway.replace('/', '-')}-{i}", *names)
                 for i, (what, names) in enumerate(wrong_names(site, gateway, others).items())}
        stem, name = f"{site}-{gateway.replace('/', '-')}", (URI, right.encode())
        for other, by in (("a CA of that name that nobody trusts", self.other), ("the CA of another site", self.north), ("the CA of the gateway's site", self.east)):
            if by is not authority:
                found[other] = authority.issue(f"{stem}-{by.folder.name}", name, by=by.folder)
        found["its own key"] = authority.sign_itself(f"{stem}-itself", right)
        found["no use as a client"] = authority.issue(f"{stem}-server", name, usage="serverAuth")
        found["a use for mail alone"] = authority.issue(f"{stem}-mail", name, usage="emailProtection")
        pairs = {what: (path, authority.key) for what, path in found.items()}
        for what, days, start in (("dates that are over", 1, -3), ("dates that have not begun", 1, 3)):
            out = f"{stem}-{what.split()[-1]}"
            self.lab.tombolo("pki", "issue", "--dir", authority.folder, "--out", out, "--days", days, "--start-days", start, right)
            pairs[what] = authority.folder / f"{out}.crt", authority.folder / f"{out}.key"
        pairs["the CA itself"] = authority.folder / "ca.crt", authority.folder / "ca.key"
        pairs["none"] = None, None
        return pairs


def east_of(lab):
    """East listens for west and north, and for workers by TLS."""
    forger = Forger(lab)
    east = lab.site("east")
    east.models["policy"] = dict(home="east", read=["tombolo://west/*", "tombolo://east/worker/w0"])
    east.peers.update(west=None, north=None)
    east.extra["session"] = {"listen": f"{lab.address}:{east.worker_port}"}
    east.extra["fabric"] = {"listen": f"{lab.address}:0"}
    east.extra["limits"] = {"handshakes_open": 4096, "handshakes_failed": 100000, "garbled_frames": 1000000}  # thousands are tried here
    return forger, east


def honest_link(forger, to, site="west"):
    """An open connection of a right peer, and the id of its session."""
    authority = getattr(forger, site)
    connection = Connection(to, tls(authority.folder / "ca.crt", authority.folder / "gw.crt", authority.key))
    connection.send(frame(HELLO, link_hello(site)))
    expect(f"{site} is greeted", connection.answer(), HELLO)
    payload = connection.answered
    at = 8
    for _ in range(2):
        at += 2 + struct.unpack_from("<H", payload, at)[0]
    return connection, payload[at + 8 + 16 + 8:at + 8 + 16 + 8 + 16]


def denials(site, action):
    """Rows of the audit record: what was denied, by that action."""
    rows = [json.loads(line) for line in site.cli("audit", "--json", "--action", action, "--limit", "1000").stdout.splitlines()]
    return [r for r in rows if r["share"] == "denials"]


def greeted(to, forger):
    """A session of west; None while the one before is not over."""
    context = tls(forger.west.folder / "ca.crt", forger.west.folder / "gw.crt", forger.west.key)
    try:
        connection = Connection(to, context)
        connection.send(frame(HELLO, link_hello(life=b"l" * 16)))
        if connection.answer() == HELLO:
            return connection
        connection.__exit__()
    except Ended:
        pass
    return None
