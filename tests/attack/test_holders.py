"""Those who may speak, and claim to hold what they do not: a worker, and a peer. Only a holder's own
word about its own copy counts (P3), and none of them moves another's group (P2).

Covers: gateway/catalog/rules/version_rules.c gateway/catalog/rules/unpublish_rules.c
"""

import os
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from certificates import URI  # noqa: E402
from forger import east_of  # noqa: E402
from harness import Trainer, expect, main, scenario, wait_for  # noqa: E402
from hostile import REPLY, SESSION_HELLO, SUBSCRIBE, WELCOME, Connection, frame, session_hello, span, text, tls  # noqa: E402

EXPORT = 19


class Session:
    """A worker's session that says what it likes."""

    def __init__(self, lab, forger, site, name):
        forger.east.issue(name, (URI, f"tombolo://east/worker/{name}".encode()))
        context = tls(forger.east.folder / "ca.crt", forger.east.folder / f"{name}.crt", forger.east.key)
        self.connection = Connection((lab.address, site.worker_port), context)
        self.requests = 0
        self.asked(SESSION_HELLO, session_hello(name, f"host-{name}"), WELCOME)

    def asked(self, kind, payload, answer=REPLY):
        """The status of the answer."""
        self.requests += 1
        self.connection.send(frame(kind, payload, request=self.requests))
        expect("the kind of the answer", self.connection.answer(passing=set(range(1, 64)) - {answer}), answer)
        return struct.unpack_from("<i", self.connection.answered)[0] if answer == REPLY else 0

    def subscribe(self, model, group, index, count, active=bytes(16), run=0, number=0):
        return self.asked(SUBSCRIBE, struct.pack("<I", 1) + text(model) + text(group) + struct.pack("<II", index, count) + active + struct.pack("<QQ", run, number))

    def claims_whole(self, uid):
        """A notice; what is asked after it is answered after it was heard."""
        self.connection.send(frame(EXPORT, uid + struct.pack("<QIB", 1, 2**20, 1) + span(b"")))


def slow_home(lab):
    """East reads from its ranks at 64 KiB a second, by tcp: it has a version late."""
    forger, east = east_of(lab)
    me = f"unix:{os.getuid()}"
    east.models["policy"].update(publish=[me], read=[me, "tombolo://west/*", "tombolo://east/worker/*"])
    east.extra["fabric"].update(host="another", pace_bytes_per_s="64KiB")
    return forger, east.start()


@scenario
def a_reader_that_claims_all_keeps_no_version(lab):
    """P3: a reader says that it holds all of a version of which home holds a part. Home calls it not kept, and the trainer is not let go."""
    forger, east = slow_home(lab)
    paths = lab.weights(1)
    trainer = Trainer(lab, east, paths[0])
    uid = trainer.publish(1)
    liar = Session(lab, forger, east, "w0")
    expect("the liar subscribes", liar.subscribe("policy", "g", 0, 1), 0)
    wait_for("the version is ready", lambda: (east.version(uid) or {}).get("state") in ("ready", "kept"))
    liar.claims_whole(bytes.fromhex(uid))
    expect("the liar subscribes again", liar.subscribe("policy", "g", 0, 1), 0)
    expect("home holds all", east.holds(uid), False)
    expect("the version's state", east.version(uid)["state"], "ready")
    trainer.ranks[0].refused("timeout", "unpublish", uid=uid, drain_ms=100)
    expect("the version's state", east.version(uid)["state"], "ready")


if __name__ == "__main__":
    sys.exit(main())
