"""Certificates, keys and CAs that change while gateways run (P5, P6, P8, P9, P10).

Covers: gateway/daemon/certificates.c base/pki/pki.c gateway/config/gateway_tls.c
Covers: gateway/cli/pki_commands.c
"""

import os
import shutil
import signal
import ssl
import sys

from harness import Failed, Trainer, Worker, expect, main, scenario, up, wait_for


def issue(lab, site, uri=None):
    """A fresh certificate and key of the site's CA, beside those in use."""
    folder = lab.pki_dir(site.name)
    for kind in ("crt", "key"):
        (folder / f"next.{kind}").unlink(missing_ok=True)
    lab.tombolo("pki", "issue", "--dir", folder, "--out", "next", uri or f"tombolo://{site.name}/gw")
    return folder


def put(folder, *kinds):
    for kind in kinds or ("crt", "key"):
        shutil.copyfile(folder / f"next.{kind}", folder / f"new.{kind}")
        os.chmod(folder / f"new.{kind}", 0o600)
        os.replace(folder / f"new.{kind}", folder / f"gw.{kind}")


def loaded(site, count):
    wait_for(f"{site.name} has read {count} times", lambda: site.counters()["certificates_loaded"] == count)


def shown(lab, site):
    """The certificate that it shows to a client."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((site.address, site.port)))


def on_disk(folder):
    text = (folder / "gw.crt").read_text()
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[:text.index(end) + len(end)])


def patient(*sites):
    """Their links are down for what is done to them, and not for a machine that has no core for
    one of them."""
    for site in sites:
        site.extra["link"] = {"down_ms": 60000}


@scenario
def certificates_are_renewed_in_mid_version(lab):
    """P5 P6 P9: both gateways get new ones while a version crosses: the link goes on over a
    fresh connection, is never down, and what was held is not sent again."""
    east, west, link = lab.east_west()
    east.peer_keys["west"] = {"rate": "20Mbit"}
    patient(east, west)
    up(east, west)
    before = shown(lab, east)
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    west.wait_held_some(uid, 0.2)
    east.cli("limit", "west", "--rate", "1Mbit")  # the middle of it lasts
    for site in (east, west):
        folder = issue(lab, site)
        put(folder)
        site.daemon.signal(signal.SIGHUP)
        loaded(site, 1)
        expect(f"{site.name} shows the new one", site is west or shown(lab, site) == on_disk(folder), True)
    if shown(lab, east) == before:
        raise Failed("east shows the old certificate")
    wait_for("west dials anew", lambda: west.daemon.logged("link.renewed"))
    v = west.version(uid)
    if v["held_bytes"] == v["bytes"]:
        raise Failed("the version was whole before: nothing was tried")
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(uid)
    for site in (east, west):
        if site.daemon.logged("link.down"):
            raise Failed(f"the link was down at {site.name}")
    v = west.version(uid)
    chunk, streams = 1 << 20, 4
    if v["wire_bytes"] > v["bytes"] * 1.01 + 2 * streams * chunk:
        raise Failed(f"{v['wire_bytes']} bytes came for a version of {v['bytes']}")


@scenario
def bad_certificates_are_refused(lab):
    """P8 P10: half a file, another's key, another gateway's certificate: each is one line and
    one count, and what was there goes on."""
    east, west, _ = lab.east_west(through_link=False)
    patient(east, west)
    up(east, west)
    before, folder = shown(lab, east), issue(lab, east)
    good = (folder / "gw.crt").read_bytes(), (folder / "gw.key").read_bytes()

    def refused(count, *words):
        east.daemon.signal(signal.SIGHUP)
        wait_for(f"refusal {count}", lambda: east.counters()["certificates_refused"] >= count)
        if not east.daemon.logged("tls.refused", *words):
            raise Failed(f"no line says {words}")
        expect("it shows", shown(lab, east), before)
    (folder / "gw.crt").write_bytes(good[0][:100])
    refused(1, "gw.crt", "certificate 1 in it is cut or damaged")
    (folder / "gw.crt").write_bytes(good[0])
    put(folder, "key")
    refused(2, "gw.key", "is not the key of")
    (folder / "gw.key").write_bytes(good[1])
    issue(lab, east, "tombolo://east/other")
    put(folder)
    refused(3, "the certificate is for tombolo://east/other")
    (folder / "gw.crt").unlink()
    refused(4, "gw.crt", "No such file")
    west.wait_holds(Trainer(lab, east, lab.weights(1)[0]).publish(1))
    issue(lab, east)
    put(folder)
    east.daemon.signal(signal.SIGHUP)
    loaded(east, 1)
    expect("it shows", shown(lab, east), on_disk(folder))
    if west.daemon.logged("link.down"):
        raise Failed("a refused certificate cost the link")


CUT = ("west-cas.crt: certificate 2 in it is cut or damaged", "write the file again")


@scenario
def an_authority_is_replaced(lab):
    """P8 P9 P10: west's CA is followed by another. A site that trusts both lets both in; a file that
    is cut in the second is refused, live and at a start; once the old one is gone its
    certificates open nothing."""
    east, west, _ = lab.east_west(through_link=False)
    old, new = lab.pki_dir("west"), lab.dir / "pki-west-new"
    trusted = lab.dir / "west-cas.crt"
    shutil.copyfile(old / "ca.crt", trusted)
    east.peer_keys["west"] = {}
    config = east.config_text
    east.config_text = lambda: config().replace(str(old / "ca.crt"), str(trusted))
    lab.tombolo("pki", "init", "--dir", new, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", new, "--out", "gw", "tombolo://west/gw")
    up(east, west)
    trusted.write_bytes((old / "ca.crt").read_bytes() + (new / "ca.crt").read_bytes())
    loaded(east, 1)
    west.wait_link("east")
    for name in ("ca.crt", "gw.crt", "gw.key"):
        (old / name).write_bytes((new / name).read_bytes())
    loaded(west, 1)
    west.wait_link("east")
    west.wait_holds(Trainer(lab, east, lab.weights(1)[0]).publish(1))
    both = trusted.read_bytes()
    trusted.write_bytes(both[:-100])
    wait_for("half a CA is refused", lambda: east.counters()["certificates_refused"] >= 1)
    trusted.write_bytes(b"")
    east.daemon.signal(signal.SIGHUP)
    wait_for("no CA at all is refused", lambda: east.counters()["certificates_refused"] >= 2)
    expect("lines", [len(east.daemon.logged("tls.refused", *words)) for words in ((), CUT, ("holds no PEM",))], [2, 1, 1])
    west.wait_link("east")
    lab.tombolo("pki", "init", "--dir", lab.dir / "pki-stranger", "--site", "west")
    trusted.write_bytes((lab.dir / "pki-stranger" / "ca.crt").read_bytes())
    loaded(east, 2)
    wait_for("west's certificate opens nothing", lambda: east.control("status")["links"][0]["state"] != "up")
    wait_for("west is refused", lambda: east.daemon.logged("link.stranger_refused"))
    east.daemon.terminate()
    trusted.write_bytes(both[:-100])
    east.start(wait=False)
    expect("exit code of a start", east.daemon.ended(), 1)
    if not east.daemon.logged("start.failed", *CUT):
        raise Failed("no line says which file is cut")


@scenario
def a_worker_shows_what_its_files_have_now(lab):
    """P8 P9 P10: the authority of a site is replaced while a worker from elsewhere has a
    session: it comes back with the certificate that its files have by then. Files that do not
    serve are told of once, and what was read before is shown."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", publish=["tombolo://east/worker/w"])
    east.extra["session"] = {"listen": f"{lab.address}:{east.worker_port}"}
    east.peers["west"] = None  # so that it has certificates
    folder, new = lab.pki_dir("east"), lab.dir / "pki-east-new"
    lab.pki_dir("west")
    own = {kind: lab.dir / f"worker.{kind}" for kind in ("ca", "crt", "key")}

    def give(*authorities):
        own["ca"].write_bytes(b"".join((a / "ca.crt").read_bytes() for a in authorities))
        lab.tombolo("pki", "issue", "--dir", authorities[-1], "--out", "w", "tombolo://east/worker/w")
        for kind in ("crt", "key"):
            os.replace(authorities[-1] / f"w.{kind}", own[kind])
    give(folder)
    east.start()
    worker = Worker(lab, "w", east, gateway=f"{lab.address}:{east.worker_port}", ca=str(own["ca"]), cert=str(own["crt"]), key=str(own["key"]))
    worker.ok("run", model="policy", key="k")
    lab.tombolo("pki", "init", "--dir", new, "--site", "east")
    lab.tombolo("pki", "issue", "--dir", new, "--out", "gw", "tombolo://east/gw")
    give(folder, new)
    for name in ("ca.crt", "gw.crt", "gw.key"):
        (folder / name).write_bytes((new / name).read_bytes())
    east.daemon.signal(signal.SIGHUP)
    loaded(east, 1)
    wait_for("the worker is back", lambda: worker.call("run", model="policy", key="k")["status"] == "ok" and worker.logged("session.gateway_back"))
    own["crt"].write_bytes(own["crt"].read_bytes()[:200])
    east.restart()
    wait_for("the worker is back again", lambda: worker.call("run", model="policy", key="k")["status"] == "ok"
             and len(worker.logged("session.gateway_back")) == 2)
    expect("lines", len(worker.logged("session.tls_refused", "worker.crt: certificate 1 in it is cut or damaged")), 1)


if __name__ == "__main__":
    sys.exit(main())
