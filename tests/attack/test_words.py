"""Words that need the signature of a model's home: a gateway that offers a worker what the home never signed, and a worker that claims runs (P1, P2).

Covers: intra/client/follow/home_word.c gateway/daemon/sessions/home_runs.c
Covers: gateway/daemon/links/publisher_words.c intra/client/publish/publisher_word.c
"""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from certificates import URI  # noqa: E402
from claims import Session  # noqa: E402
from forger import denials, east_of  # noqa: E402
from harness import Rollout, Trainer, expect, made, main, read_and_compare, scenario, up, wait_for  # noqa: E402
from sayings import RUN, VERSION, Key, now_ms, sealed, statement  # noqa: E402
from tally import Identities, tally  # noqa: E402


def refused(lab, site, uid, path, name, home_ca, *words):
    reader = Rollout(lab, site, name, path, home_ca=home_ca)
    why = reader.worker.refused("peer_identity", "stage", uid=uid)["error"]
    expect(f"{name} is told why ({why})", [w for w in words if w not in why], [])
    reader.worker.ok("close")


@scenario
def a_worker_believes_no_gateway(lab):
    """P1: the gateway of west calls itself the home of `policy`, and one of north signs nothing. A worker that demands the signature of east
    takes neither; without the demand it takes both. East's own version counts, at east and at a follower, by file too."""
    path, ca = made(lab, "1M", 1)[0], lab.pki_dir("east") / "ca.crt"
    east, south = lab.site("east"), lab.site("south")
    east.peers["south"], south.peers["east"] = None, f"{lab.address}:{east.port}"
    south.subscribe.append(("policy", ["east"]))
    south.listen = False
    for site in (east, south):
        site.models["policy"] = dict(home="east", read=[f"unix:{os.getuid()}", "tombolo://south/*"])
    false = lab.site("west")
    false.models["policy"] = dict(home="west")
    for site in (east, south, false):
        site.start()
    forged = Trainer(lab, false, path, names=("f0", "f1")).publish(1)
    reader = Rollout(lab, false, "believer", path)
    reader.stage(forged)
    wait_for("its run and its version are signed", lambda: false.counters()["statements_signed"] >= 2)
    refused(lab, false, forged, path, "doubter", ca, "the signer's certificate")
    uid = Trainer(lab, east, path).publish(1)
    south.wait_holds(uid)
    for site in (east, south):
        reader = Rollout(lab, site, f"reader-{site.name}", path, home_ca=ca)
        reader.stage(uid)
        reader.activate(uid)
        reader.check(path)
    refused(lab, south, uid, path, "another-ca", lab.pki_dir("west") / "ca.crt", "the signer's certificate")
    for good, status in ((ca, 0), (lab.pki_dir("west") / "ca.crt", 1)):
        done = south.cli("subscribe", "policy", "--into", lab.dir / f"into-{status}", "--home-ca", good, check=False)
        expect(f"tombolo subscribe --home-ca {good.parent.name} ({done.stderr})", done.returncode != 0, status != 0)
    tally("versions that the home did not sign, staged", 2)


@scenario
def a_worker_claims_no_run_that_home_did_not_sign(lab):
    """P2: a home that lost its store hears of a worker which run is the newest. A word that its own key did not sign counts for nothing; with its
    signature the worker's word counts, and the log says what is wrong with each other."""
    forger, east = east_of(lab)
    east.models["policy"].update(publish=[f"unix:{os.getuid()}"], read=["tombolo://east/worker/*"])
    east.new_home = False
    east.start()
    uid, order = os.urandom(16), 2**19
    own = forger.east.folder / "gw.crt", forger.east.key
    key = Key(7, order=order, uid=uid)
    worker = forger.east.issue("rank", (URI, b"tombolo://east/worker/rank")), forger.east.key
    west = forger.west.folder / "gw.crt", forger.west.key
    lies = {"nothing": b"", "random bytes": os.urandom(300), "signed by a worker": said(key, *worker), "signed by another site": said(key, *west),
            "a run": said(key, *own, kind=RUN), "another model": said(key.but(model="theirs"), *own),
            "a date before the certificate": said(key, *own, wall_ms=now_ms() - 10**10)}
    for i, lie in enumerate(lies.values()):
        liar = Session(lab, forger, east, f"liar-{i}")
        expect("it subscribes", liar.subscribe("policy", f"g{i}", 0, 1, uid, order, 7, lie), 0)
    wait_for("each was refused", lambda: len(east.daemon.logged("run.told_refused", "worker=liar-", "number=7", "status=unsigned")) == len(lies))
    expect("none was told", east.daemon.logged("home.told"), [])
    expect("forged signatures were refused", east.counters()["statements_refused"] >= 5, True)
    honest = Session(lab, forger, east, "w1")
    expect("it subscribes", honest.subscribe("policy", "own", 0, 1, uid, order, 7, said(key, *own)), 0)
    wait_for("home's own word counts", lambda: east.daemon.logged("home.told", "worker=1", f"run={order} number=7"))
    table = Identities()
    for what in lies:
        table.add("statement of a worker", what, False)
    table.show()


@scenario
def no_version_is_taken_without_its_publisher(lab):
    """P1: home and a follower demand a publisher's signature. A seal without it, or by another publisher, is refused and told why. A home that
    takes one all the same, as a gateway in wrong hands would, gets it into no follower."""
    east, west, _ = lab.east_west(through_link=False, publishers=["tombolo://east/publisher/trainer"])
    pki = lab.pki_dir("east")
    for name in ("trainer", "other"):
        lab.tombolo("pki", "issue", "--dir", pki, "--publisher", name)
    path = made(lab, "1M", 1)[0]
    up(east, west)

    def signs(stem):
        return {"sign_cert": str(pki / f"{stem}.crt"), "sign_key": str(pki / f"{stem}.key")}

    def refused(names, words, **how):
        trainer = Trainer(lab, east, path, names=names, **how)
        why = trainer.ranks[0].refused("peer_denied", "publish", model="policy", run=trainer.runs[0]["run"], number=1, shard=0, shards=2)["error"]
        expect(f"it is told why ({why})", words in why, True)
        for rank in trainer.ranks:
            rank.ok("close")
    refused(("a0", "a1"), "models.policy.publishers")
    refused(("b0", "b1"), "models.policy.publishers does not list tombolo://east/publisher/other", **signs("other"))
    wait_for("both are in the record", lambda: sum(r["count"] for r in denials(east, "session") if r["object"] == "seal") == 2)
    trainer = Trainer(lab, east, path, names=("c0", "c1"), **signs("trainer"))
    uid = trainer.publish(2)
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path)
    for stem, good in (("other", False), ("gw", False), ("trainer", True)):
        signing = [f"--{option.replace('_', '-')}={name}" for option, name in signs(stem).items()]
        done = east.cli("publish", "policy", path, "--version", "9", *signing, check=False)
        expect(f"tombolo publish, signed by {stem} ({done.stderr})", done.returncode == 0, good)
    del east.models["policy"]["publishers"]
    east.restart()
    for rank in trainer.ranks:
        rank.ok("close")
    east.wait_link("west")
    forged = Trainer(lab, east, path, names=("d0", "d1")).publish(10)
    east.wait_holds(forged)
    wait_for("west takes it not", lambda: west.daemon.logged("version.unsigned", "peer=east", "number=10"))
    expect("west has none of it", west.version(forged), None)
    tally("versions without the publisher's signature", 5)


def said(key, certificate, private, kind=VERSION, **how):
    """A statement as a worker shows it: the payload of STATEMENT without its length."""
    return sealed(statement(kind, key, **how), certificate, private)[4:]


if __name__ == "__main__":
    sys.exit(main())
