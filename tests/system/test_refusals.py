"""Refusals of peers, workers and versions: one line and one counter, nothing lost, nobody dies
(P7, P8, P10).

Covers: gateway/daemon/rights.c gateway/daemon/links/peer_rights.c
Covers: gateway/daemon/sessions/sessions.c gateway/daemon/links/crossing_room.c
Covers: gateway/daemon/shutdown.c gateway/daemon/main.c
"""

import os
import re
import subprocess
import sys

from harness import (Dns, Failed, Rollout, Trainer, Worker, expect, main, read_and_compare,
                     safetensors_table, scenario, up, wait_for)


def refused_link(lab, east, west):
    """Both start, the link does not come up, and east says why in a line."""
    east.start()
    west.start()
    wait_for("a refusal is counted", lambda: refusals(east) + refusals(west) > 0)
    for s, peer in ((east, "west"), (west, "east")):
        if s.link(peer)["state"] == "up":
            raise Failed("the link came up")
        if not s.daemon.alive():
            raise Failed("a daemon died of its peer")


def refusals(site):
    c = site.counters()
    link = next(iter(site.control("status")["links"]), {})
    return c.get("links_refused", 0) + c.get("links_strangers_refused", 0) + (link.get("state") == "refused")


@scenario
def a_peer_of_another_ca_is_refused(lab):
    """P8: west's certificate is signed by a CA that east does not know for it."""
    east, west, _ = lab.east_west(through_link=False)
    other = lab.dir / "pki-other"
    lab.tombolo("pki", "init", "--dir", other, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", other, "--out", "gw", "tombolo://west/gw")
    west.trust = other
    refused_link(lab, east, west)


def openssl_pki(folder, site, uri):
    """ca.crt of a site by openssl, without the name constraints that `tombolo pki init` sets,
    and a gw.crt of `uri`."""
    folder.mkdir()
    def run(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "san").write_text(f"subjectAltName=URI:{uri}\nextendedKeyUsage=serverAuth,clientAuth\n")
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.crt", "-subj", f"/CN={site}", "-days", "2")
    run("req", *ec, "-keyout", "gw.key", "-out", "gw.csr", "-subj", "/CN=gw")
    run("x509", "-req", "-in", "gw.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "san", "-out", "gw.crt")
    (folder / "gw.key").chmod(0o600)
    return folder


@scenario
def a_site_speaks_for_itself_alone(lab):
    """P8: north's CA is trusted at east for north; a certificate for west that it signed is
    refused all the same."""
    east, west, _ = lab.east_west(through_link=False)
    lab.pki_dir("west")
    lab._pki["north"] = openssl_pki(lab.dir / "pki-north", "north", "tombolo://west/gw")
    east.peers["north"] = None
    west.trust = lab._pki["north"]
    refused_link(lab, east, west)


@scenario
def a_certificate_of_another_site_is_refused(lab):
    """P8: a certificate of the right CA for another gateway name is not the configured peer."""
    east, west, _ = lab.east_west(through_link=False)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "imposter", "tombolo://west/other")
    imposter = lab.dir / "pki-imposter"
    imposter.mkdir()
    for f, t in (("ca.crt", "ca.crt"), ("imposter.crt", "gw.crt"), ("imposter.key", "gw.key")):
        (imposter / t).write_bytes((pki / f).read_bytes())
        (imposter / t).chmod(0o600)
    west.trust = imposter
    config = west.config_text().replace("gateway: gw\n", "gateway: other\n", 1)
    west.config_text = lambda: config
    refused_link(lab, east, west)


@scenario
def an_expired_certificate_is_refused(lab):
    """P8: a gateway does not start with a certificate that has expired, and says which."""
    east, west, _ = lab.east_west(through_link=False)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "old", "--days", "1", "--start-days", "-3", "tombolo://west/gw")
    old = lab.dir / "pki-old"
    old.mkdir()
    for f, t in (("ca.crt", "ca.crt"), ("old.crt", "gw.crt"), ("old.key", "gw.key")):
        (old / t).write_bytes((pki / f).read_bytes())
        (old / t).chmod(0o600)
    west.trust = old
    east.start()
    west.start(wait=False)
    expect("exit code", west.daemon.ended(), 1)
    if not any(re.search(r"gw\.crt: the certificate has expired, at 20[0-9-]{8} ", line) for line in west.daemon.logged("start.failed")):
        raise Failed("no line says that the certificate has expired, and when")


@scenario
def sites_that_disagree_on_a_home_say_so(lab):
    """P8 P10: west takes another site for the model's home; nothing crosses, and east's log says
    what to change."""
    east, west, _ = lab.east_west(through_link=False)
    west.models["policy"]["home"] = "north"
    up(east, west)
    wait_for("east says so", lambda: east.daemon.logged("link.home_differs", "home_there=north", "home_here=east"))
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    east.wait_holds(uid)
    expect("at west", west.version(uid), None)

    def told():
        """West counts the chunks that it refused: home asks the others for what may rot here."""
        return east.daemon.logged("link.home_differs") + [l for l in east.daemon.logged("link.denied") if "by=peer" not in l]
    wait_for("a line for each refusal", lambda: len(told()) == east.counters()["denied"])


@scenario
def names_resolve_and_addresses_are_tried_in_turn(lab):
    """P6: the peer is a name with two addresses, on the first of which nobody listens; AAAA is
    answered with nothing."""
    east, west, _ = lab.east_west(through_link=False)
    dns = Dns({"gw.east.test": ["127.0.0.9", lab.address]})
    west.extra["dns"] = {"servers": f"127.0.0.1:{dns.port}"}
    west.peers["east"] = f"gw.east.test:{east.port}"
    try:
        up(east, west)
        uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
        west.wait_holds(uid)
        if dns.asked == 0:
            raise Failed("nobody asked the name server")
    finally:
        dns.close()


@scenario
def a_worker_without_rights_is_refused(lab):
    """P8 P10: neither publish nor read without a right; the refusal is counted and logged."""
    east, west, _ = lab.east_west(through_link=False)
    for s in (east, west):
        s.models["policy"]["publish"] = ["unix:64999"]
        s.models["policy"]["read"] = ["tombolo://west/*", "tombolo://east/*"]
    up(east, west)
    w = Worker(lab, "nobody", east)
    w.refused("peer_denied", "run", model="policy", key="k")
    w.refused("peer_denied", "wait", model="policy", kind="latest", timeout_ms=0)
    w.refused("peer_denied", "subscribe", model="policy", group="g")
    w.refused("peer_denied", "run", model="unknown", key="k")
    if east.counters()["denied"] < 4:
        raise Failed("denials are not counted")
    for right in ("publish", "read"):
        if not east.daemon.logged("session.denied", f"models.policy.{right} does not list it"):
            raise Failed(f"no line names the {right} list")


@scenario
def a_peer_without_the_right_is_told_which_list(lab):
    """P8 P10: one line at home has the model, the list and the identity that it lacks."""
    east, west, _ = lab.east_west(through_link=False)
    east.models["policy"]["read"] = [f"unix:{os.getuid()}", "tombolo://north/*"]
    up(east, west)
    line = wait_for("east says so", lambda: east.daemon.logged("link.denied", "model=policy"))[0]
    for words in ("list=models.policy.read", "lacks=tombolo://west/gw"):
        expect(f"{words} in {line}", words in line, True)
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    east.wait_holds(uid)
    expect("at west", west.version(uid), None)


@scenario
def a_worker_over_tls(lab):
    """P8: a worker from elsewhere comes with a certificate; one of another CA does not get in."""
    east, west, _ = lab.east_west(through_link=False)
    west.extra["session"] = {"listen": f"{lab.address}:{west.worker_port}"}
    forger = lab.dir / "pki-forger"  # a CA that west takes for east's, and that makes workers of west
    lab.tombolo("pki", "init", "--dir", forger, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", forger, "--out", "w", "tombolo://west/worker/w")
    trusted = lab.pki_dir("east") / "ca.crt"
    trusted.write_bytes(trusted.read_bytes() + (forger / "ca.crt").read_bytes())
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "w", "tombolo://west/worker/w")
    tls = dict(gateway=f"{lab.address}:{west.worker_port}", ca=str(pki / "ca.crt"), cert=str(pki / "w.crt"), key=str(pki / "w.key"))
    reader = Rollout(lab, west, "remote", path, host="elsewhere", **tls)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    bad = lab.dir / "pki-bad"
    lab.tombolo("pki", "init", "--dir", bad, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", bad, "--out", "w", "tombolo://west/worker/w")
    stranger = Worker(lab, "stranger")
    reply = stranger.call("open", gateway=f"{lab.address}:{west.worker_port}", name="stranger", ca=str(pki / "ca.crt"),
                          cert=str(bad / "w.crt"), key=str(bad / "w.key"), timeout_ms=3000)
    if reply["status"] == "ok":
        raise Failed("a stranger got in")
    lab.tombolo("pki", "issue", "--dir", lab.pki_dir("east"), "--out", "w", "tombolo://east/worker/w")
    for folder, name, what in ((forger, "w", "the CA of another site made a worker of this one"),
                               (lab.pki_dir("east"), "w", "a worker of another site got in"),
                               (pki, "gw", "a gateway got in as a worker")):
        reply = Worker(lab, f"impostor-{name}-{folder.name}").call(
            "open", gateway=f"{lab.address}:{west.worker_port}", name="impostor", ca=str(pki / "ca.crt"),
            cert=str(folder / f"{name}.crt"), key=str(folder / f"{name}.key"), timeout_ms=3000)
        if reply["status"] == "ok":
            raise Failed(what)


@scenario
def a_version_over_budget_is_refused(lab):
    """P7 P10: a version that does not fit is refused with the numbers, and those that are there stay."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=32)
    up(east, west)
    path = lab.weights(1)[0]
    rows = safetensors_table(path)
    rank = Worker(lab, "rank", east)
    rank.ok("register", tensors=rows, file=str(path))
    run = rank.ok("run", model="policy", key="k")["run"]
    first = rank.ok("publish", model="policy", run=run, number=1)["uid"]
    west.wait_holds(first)
    big = lab.dir / "big.safetensors"
    count = 48 << 20
    header = b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (count, count)
    big.write_bytes(len(header).to_bytes(8, "little") + header + bytes(count))
    rank.ok("register", memory=1, tensors=safetensors_table(big), file=str(big))
    reply = rank.refused("site_nomem", "publish", model="policy", run=run, number=2, memory=1)
    if not any(ch.isdigit() for ch in reply["error"]):
        raise Failed(f"the refusal has no numbers: {reply['error']}")
    read_and_compare(lab, west, first, path, "reader")


@scenario
def a_version_over_the_budget_of_another_site_is_refused_there(lab):
    """P7 P10: a version that fits at home and not at west is refused there with the numbers, and what west
    has stays."""
    east, west, _ = lab.east_west(through_link=False)
    west.arena_mib = 32
    up(east, west)
    path = lab.weights(1)[0]
    first = Trainer(lab, east, path).publish(1)
    west.wait_holds(first)
    big = lab.dir / "big.safetensors"
    count = 48 << 20
    header = b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (count, count)
    big.write_bytes(len(header).to_bytes(8, "little") + header + bytes(count))
    east.cli("publish", "policy", big, "--version", 2)
    line = wait_for("west refuses it", lambda: west.daemon.logged("arena.refused", "number=2"))[0]
    if "needed_bytes=" not in line or west.counters()["arena_refused"] == 0:
        raise Failed(f"the refusal has no numbers or is not counted: {line}")
    read_and_compare(lab, west, first, path, "reader")


if __name__ == "__main__":
    sys.exit(main())
