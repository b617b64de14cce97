"""A relay with a right certificate lies about a model whose home is another site: it invents runs
and versions, changes them, withdraws them, and forges the signature of the home (P1, P2).

East follows `policy` of north by way of west. The attacker has the keys of west, and a certificate
of each kind that north would not give it. Before versions were signed, east took run 2^62 of west
as head, and a withdrawal of west ended any version.

Covers: gateway/daemon/links/statements.c gateway/daemon/links/link_events.c base/net/signed.c
"""

import os
import pathlib
import shutil
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from certificates import URI, Authority  # noqa: E402
from forger import Forger, greeted  # noqa: E402
from harness import Failed, expect, main, scenario, wait_for  # noqa: E402
from hostile import PING, PONG, frame, text  # noqa: E402
from sayings import RUN, VERSION, WITHDRAWN, Key, now_ms, openssl, sealed, statement  # noqa: E402
from tally import Identities, tally  # noqa: E402

F_SUBSCRIBE, F_VERSION, F_GONE, F_RUN_TOLD, F_STATEMENT = 5, 7, 8, 30, 38
GONE_WITHDRAWN, GONE_LOST, GONE_BROKEN = 604, 602, 603  # of include/tombolo/status.h


class Relay:
    """West, to which east listens, and all that it knows of north."""

    def __init__(self, lab):
        self.forger = Forger(lab)
        self.east = lab.site("east")
        me = f"unix:{os.getuid()}"
        self.east.models["policy"] = dict(home="north", read=["tombolo://west/*", me], keep=8)
        self.east.peers.update(west=None, north=None)
        self.east.subscribe.append(("policy", ["west", "north"]))
        self.east.extra["link"] = {"heartbeat_ms": 60000, "down_ms": 600000}  # to sign takes this program its time
        self.east.start()
        self.address = lab.address
        north = self.forger.north
        self.right = north.folder / "gw.crt", north.key
        self.connection = None

    def connect(self):
        self.connection = wait_for("west is greeted", lambda: greeted((self.address, self.east.port), self.forger))

    def say(self, *frames):
        for kind, payload in frames:
            self.connection.send(frame(kind, payload))

    def seen(self):
        """East has handled all that was sent: PONG comes behind it."""
        self.say((PING, b"\7" * 8))
        while True:
            kind, payload = self.connection.receive()
            if kind == PING:
                self.say((PONG, payload))
            elif (kind, payload) == (PONG, b"\7" * 8):
                return

    def knows(self, key):
        self.seen()
        return self.east.version(key.uid.hex())

    def became(self, key, state):
        """East's log says so: versions that nobody holds are not listed."""
        self.seen()
        return self.east.daemon.logged("version.state", f"uid={key.uid.hex()} state={state}")

    def signed(self, kind, key, by=None, **how):
        return F_STATEMENT, sealed(statement(kind, key, **how), *(by or self.right))


def uids(site):
    return {v["uid"] for v in site.control("versions", model="policy")["versions"]}


def other_certificates(relay):
    """{what is wrong: (certificate, key)}"""
    forger, name = relay.forger, (URI, b"tombolo://north/gw")
    west, north = forger.west, forger.north
    stranger = Authority(north.folder.parent / "pki-stranger", "north")
    stranger.issue("gw", name)
    pairs = {
        "west's own": (west.folder / "gw.crt", west.key), "the CA of west, for north": (west.issue("as-north", name), west.key),
        "a CA that nobody trusts": (stranger.folder / "gw.crt", stranger.key), "its own key": (north.sign_itself("itself", "tombolo://north/gw"), north.key),
        "a publisher of north": (north.issue("press", (URI, b"tombolo://north/publisher/gw")), north.key),
        "a worker of north": (north.issue("rank", (URI, b"tombolo://north/worker/rank-0")), north.key),
        "a gateway of another site by north's CA": (north.issue("of-west", (URI, b"tombolo://west/gw")), north.key),
        "two names": (north.issue("two", name, (URI, b"tombolo://west/gw")), north.key), "no name": (north.issue("none"), north.key),
        "north's certificate and another key": (north.folder / "gw.crt", west.key),
    }
    for what, days, start in (("dates that are over", 1, -3), ("dates that have not begun", 1, 3)):
        out = f"gw-{what.split()[-1]}"
        forger.lab.tombolo("pki", "issue", "--dir", north.folder, "--out", out, "--days", days, "--start-days", start, "tombolo://north/gw")
        pairs[what] = north.folder / f"{out}.crt", north.folder / f"{out}.key"
    return pairs


def forged(relay):
    """{what is wrong: (frames before VERSION, the key in VERSION)}"""
    cases = {what: ([relay.signed(VERSION, key, by)], key)
             for (what, by), key in ((pair, Key(10 + i)) for i, pair in enumerate(other_certificates(relay).items()))}
    key = Key(40)
    said = statement(VERSION, key)
    right = sealed(said, *relay.right)
    flipped = bytearray(right)
    flipped[4 + 2 + 30] ^= 1
    cases.update({
        "no signature": ([], Key(41)), "run 2^62": ([], Key(1, order=2**62)), "an empty signature": ([(F_STATEMENT, sealed(said, *relay.right, signature=b""))], key),
        "random bytes as signature": ([(F_STATEMENT, sealed(said, *relay.right, signature=os.urandom(70)))], key), "a bit changed": ([(F_STATEMENT, bytes(flipped))], key),
        "a date before the certificate": ([relay.signed(VERSION, key, wall_ms=now_ms() - 10**10)], key),
        "a date behind its end": ([relay.signed(VERSION, key, wall_ms=now_ms() + 10**10)], key),
        "a run, not a version": ([relay.signed(RUN, key)], key), "a withdrawal, not a version": ([relay.signed(WITHDRAWN, key)], key),
        "another model": ([relay.signed(VERSION, key.but(model="theirs"))], key),
    })
    for what, change in (("another root", {"root": bytes(15) + b"\1"}), ("another uid", {"uid": b"u" * 16}), ("another run", {"run": b"r" * 16}),
                         ("another order", {"order": 2**62}), ("another number", {"number": 2**62}), ("other shards", {"shards": 2})):
        signed_key = Key(50 + len(cases))
        cases[f"{what} than home signed"] = ([relay.signed(VERSION, signed_key)], signed_key.but(**change))
    return cases


@scenario
def no_forged_version_is_believed(lab):
    """P2: each lie over a connection of its own; then the truth, by the same relay, counts."""
    relay, believed = Relay(lab), []
    cases = forged(relay)
    for what, (frames, key) in cases.items():
        relay.connect()
        relay.say(*frames, (F_VERSION, key.frame()))
        if relay.knows(key) or uids(relay.east):
            believed.append(what)
        relay.connection.__exit__()
    table = Identities()
    for what in cases:
        table.add("statement of a relay", what, what in believed)
    table.show()
    expect("believed", believed, [])
    expect("no head", relay.east.control("lag", model="policy")["lag"][0]["head"], None)
    expect("nothing became ready", relay.east.daemon.logged("version.state"), [])
    relay.connect()
    key = Key(99)
    relay.say(relay.signed(VERSION, key), (F_VERSION, key.frame()))
    wait_for("home's own word counts", lambda: relay.knows(key))
    expect("who signed it", relay.east.version(key.uid.hex())["signed_by"], "tombolo://north/gw")


@scenario
def no_forged_withdrawal_is_believed(lab):
    """P2: a withdrawal of the relay's own, by each frame that can say one, and an old one of another
    version. Then the right one."""
    relay = Relay(lab)
    keys = [Key(number) for number in (1, 2)]
    relay.connect()
    for key in keys:
        relay.say(relay.signed(VERSION, key), (F_VERSION, key.frame()))
    one, other = keys
    for key in keys:
        wait_for("it is known", lambda k=key: relay.became(k, "ready"))
    gone = (F_GONE, one.uid + GONE_WITHDRAWN.to_bytes(4, "little"))
    west = relay.forger.west.folder / "gw.crt", relay.forger.west.key
    lies = {"unsigned": [], "signed by the relay": [relay.signed(WITHDRAWN, one, by=west)], "of another version": [relay.signed(WITHDRAWN, other.but(uid=os.urandom(16)))],
            "a version's signature": [relay.signed(VERSION, one)]}
    for frames in lies.values():
        relay.say(*frames, (F_VERSION, one.frame(2)))
        relay.seen()
    relay.say(gone)
    relay.say(relay.signed(WITHDRAWN, other), (F_VERSION, other.frame(2)))
    wait_for("home's own word counts", lambda: relay.became(other, "withdrawn"))
    if relay.became(one, "withdrawn"):  # it came before: what is durable becomes so in order
        raise Failed("a withdrawal was believed that home did not sign")
    table = Identities()
    for what in [*lies, "GONE that says so"]:
        table.add("withdrawal of a relay", what, False)
    table.show()


@scenario
def a_relay_ends_no_version(lab):
    """P3: a relay says that a version is broken, or lost. It is a source no more, and the version stays: announced
    again it is there. North, its home, may say so."""
    relay = Relay(lab)
    keys = {GONE_LOST: Key(1), GONE_BROKEN: Key(2)}
    relay.connect()
    for why, key in keys.items():
        relay.say(relay.signed(VERSION, key), (F_VERSION, key.frame()))
        wait_for("it is known", lambda k=key: relay.became(k, "ready"))
        relay.say((F_GONE, key.uid + why.to_bytes(4, "little")))
        expect("it ended", relay.became(key, "lost") + relay.became(key, "broken"), [])
        expect("a source is left", [s["site"] for s in (relay.knows(key) or {"sites": []})["sites"] if s["known"]], [])
        relay.say((F_VERSION, key.frame()))
        wait_for("it is offered again", lambda k=key: (relay.knows(k) or {}).get("state") == "ready")
    tally("forged ends of versions", len(keys))


@scenario
def a_ca_that_is_taken_away_signs_no_more(lab):
    """P2: north's CA is replaced in a file that east trusts. Its signatures of before count no more, and later ones do not count either."""
    relay = Relay(lab)
    relay.connect()
    old, new = Key(1), Key(2)
    relay.say(relay.signed(VERSION, old), (F_VERSION, old.frame()))
    wait_for("it counts", lambda: relay.knows(old))
    expect("who signed it", relay.east.version(old.uid.hex())["signed_by"], "tombolo://north/gw")
    kept = relay.forger.north.folder
    successor = Authority(kept.parent / "pki-successor", "north")
    shutil.copy(kept / "ca.crt", kept / "old-ca.crt")
    shutil.copy(successor.folder / "ca.crt", kept / "ca.crt")
    relay.east.daemon.popen.send_signal(signal.SIGHUP)
    wait_for("east has read it", lambda: relay.east.daemon.logged("tls.loaded", "trust=changed"))
    relay.connection.__exit__()
    relay.connect()
    relay.say(relay.signed(VERSION, new), (F_VERSION, new.frame()))
    expect("a later one", relay.knows(new), None)
    expect("the older one", relay.east.version(old.uid.hex())["signed_by"], "")
    openssl("verify", "-CAfile", kept / "old-ca.crt", kept / "gw.crt")  # by the CA that was taken away it is right


@scenario
def no_run_is_told_to_a_home_that_lost_its_store(lab):
    """P2: a home asks which runs are remembered. A peer names one that no key of the home signed, and the next
    run does not follow it."""
    forger = Forger(lab)
    east = lab.site("east")
    east.models["policy"] = dict(home="east", read=["tombolo://west/*"])
    east.peers.update(west=None)
    east.new_home = False
    east.start()
    connection = wait_for("west is greeted", lambda: greeted((lab.address, east.port), forger))
    key = Key(0, order=2**20)
    connection.send(frame(F_STATEMENT, sealed(statement(RUN, key), forger.west.folder / "gw.crt", forger.west.key)))
    connection.send(frame(F_RUN_TOLD, text("policy") + (2**20).to_bytes(8, "little") + bytes(8) + key.run))
    wait_for("it is refused", lambda: east.daemon.logged("run.told_refused", "peer=west", "run=1048576", "status=unsigned"))
    wait_for("none is told", lambda: east.daemon.logged("home.told", "peer=west run=0"))


if __name__ == "__main__":
    sys.exit(main())
