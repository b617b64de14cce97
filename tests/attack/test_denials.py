"""Parties that are denied as often as they can: they push no act of an operator out of the record, and
each of them is in it (P7, P8, P10). A certificate that an operator revoked opens nothing.

Covers: gateway/daemon/audit.c gateway/store/store_audit.c base/net/tls_revoked.c gateway/daemon/certificates.c
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from forger import east_of, honest_link  # noqa: E402
from harness import Failed, Worker, expect, main, scenario, wait_for  # noqa: E402
from hostile import BIND, BOUND, HELLO, Connection, Ended, bind, frame, link_hello, tls  # noqa: E402
from tally import tally  # noqa: E402

NAMES = 400


@scenario
def denials_push_out_no_act(lab):
    """P7 P10: a worker without a right asks for hundreds of models, again and again. Its denials are a few rows with counts."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", publish=["unix:4294967294"], read=["unix:4294967294"])
    east.peers["west"] = None
    lab.pki_dir("west")
    east.extra["audit"] = {"bytes": "1MiB"}
    east.start()
    for i in range(20):
        east.cli("limit", "west", "--rate", f"{100 + i}Mbit")
    worker = Worker(lab, "w", east)
    denied = 0
    for i in range(2 * NAMES):
        denied += worker.call("run", model=f"m{i % NAMES}", key="k")["status"] == "peer_denied"
    expect("denied", denied, 2 * NAMES)
    rows = [json.loads(line) for line in east.cli("audit", "--json", "--limit", "100000").stdout.splitlines()]
    acts, denials = ([r for r in rows if r["share"] == share] for share in ("acts", "denials"))
    expect("acts", len([r for r in acts if r["action"] == "limit"]), 20)
    mine = [r for r in denials if r["identity"].startswith("unix:")]
    expect("each is counted", sum(r["count"] for r in mine), east.counters()["denied"])
    minutes = len({r["time_ms"] // 60000 for r in mine})
    if len(mine) > 33 * (minutes + 1):
        raise Failed(f"{len(mine)} rows in {minutes} minutes")
    expect("lost", east.control("status")["audit"]["lost"], 0)
    tally("denials in the record", denied)


@scenario
def a_revoked_certificate_opens_nothing(lab):
    """P8: the key of west's gateway is stolen. Before its certificate is revoked it has a link; then the link
    ends, and neither a control nor a data connection begins."""
    forger, east = east_of(lab)
    path = lab.dir / "east.revoked"
    path.write_text("")
    east.extra["tls"] = {"revoked": str(path)}
    east.start()
    to = (lab.address, east.port)
    context = tls(forger.west.folder / "ca.crt", forger.west.folder / "gw.crt", forger.west.key)
    connection, session = honest_link(forger, to)  # the attack succeeds
    with connection:
        lab.tombolo("pki", "revoke", "--list", path, forger.west.folder / "gw.crt")
        wait_for("the list is read", lambda: east.counters()["certificates_loaded"] == 1)
        try:
            while True:
                connection.receive()
        except Ended:
            pass
    for what, kind, payload, right in (("control", HELLO, link_hello(), HELLO), ("data", BIND, bind(session), BOUND)):
        try:
            with Connection(to, context) as again:
                again.send(frame(kind, payload))
                if again.answer() == right:
                    raise Failed(f"a revoked certificate opened a {what} connection")
        except Ended:
            pass
    wait_for("it is in the record", lambda: "refused" in east.cli("audit", "--action", "connect").stdout)
    tally("connections of a revoked certificate", 2)


if __name__ == "__main__":
    sys.exit(main())
