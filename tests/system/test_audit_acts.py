"""Each act of which the audit record tells, by a table: what was done, and the row that says who did it, to what, from where and
with what result (P8, P10). The same rows stand in the files of `audit.file`.

Covers: gateway/daemon/audit.c gateway/store/audit_lines.c gateway/store/store_audit.c gateway/daemon/control/audit_commands.c
Covers: gateway/daemon/reload.c gateway/daemon/certificates.c gateway/daemon/sessions/session_limits.c
"""

import contextlib
import json
import os
import pathlib
import pwd
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
from harness import Failed, Rollout, Trainer, Worker, expect, main, scenario, up, wait_for  # noqa: E402

UID = f"unix:{os.getuid()}"
WEST, GATEWAY = "tombolo://west/gw", "gateway"


def operator():
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"
    return f"uid {os.getuid()}"


def rows(site):
    return [json.loads(line) for line in site.cli("audit", "--json", "--limit", "100000").stdout.splitlines()]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def row(found, action, identity, object, origin, result):
    """None stands for any text; a text that ends in `*` for its beginning."""
    def fits(text, wanted):
        return wanted is None or text == wanted or (wanted.endswith("*") and text.startswith(wanted[:-1]))
    wanted = {"action": action, "identity": identity, "object": object, "origin": origin, "result": result}
    return [r for r in found if all(fits(r[key], value) for key, value in wanted.items())]


@scenario
def each_act_has_its_row(lab):
    """P8 P10: publish, activate, withdraw, pin, limits, adopt, drain, configuration, certificates, denials, and a version that leaves."""
    east, west, _ = lab.east_west(through_link=False)
    who = operator()
    for site in (east, west):
        site.extra["audit"] = {"file": str(lab.dir / f"{site.name}.audit")}
    east.models["secret"] = dict(home="east", publish=["unix:4294967294"], read=["unix:4294967294"])
    west.models["secret"] = dict(home="east")
    west.subscribe.append(("secret", ["east"]))
    revoked = lab.dir / "revoked"
    revoked.write_text("")
    east.extra["tls"] = {"revoked": str(revoked)}
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    west.wait_holds(first)
    reader = Rollout(lab, west, "reader", path)
    reader.stage(first)
    reader.activate(first)
    folder = lab.dir / "old"
    folder.mkdir()
    (folder / path.name).write_bytes(path.read_bytes())
    west.cli("adopt", "policy", folder, check=False)
    west.cli("pin", "policy", "1:1")
    west.cli("unpin", "policy")
    east.cli("limit", "west", "--rate", "200Mbit")
    east.cli("withdraw", "policy", "1:7", check=False)
    lab.tombolo("pki", "revoke", "--list", revoked, "tombolo://north/gw")
    wait_for("the list is read", lambda: east.counters()["certificates_loaded"] >= 1)
    denied = Worker(lab, "denied", east)
    expect("a run of a model that is another's", denied.call("run", model="secret", key="k")["status"], "peer_denied")
    east.extra.setdefault("link", {})["heartbeat_ms"] = 1234
    (east.dir / "tombolod.yaml").write_text(east.config_text())
    east.daemon.signal(signal.SIGHUP)
    wait_for("the configuration was looked at", lambda: east.daemon.logged("reload.needs_restart"))
    east.cli("withdraw", "policy", "1:1")
    east.daemon.signal(signal.SIGTERM)
    wait_for("east has ended", lambda: not east.daemon.alive())
    east.start()
    wait_for("the activation is in the record", lambda: row(rows(west), "activate", UID, "policy 1:1", None, "ok"))
    table = [
        (east, "acts", ("start", GATEWAY, "", "tombolod", "0 keys changed")),
        (east, "acts", ("start", GATEWAY, "link.heartbeat_ms", "tombolod", "1 keys changed")),
        (east, "acts", ("reload", GATEWAY, "link.heartbeat_ms*", "SIGHUP", "0 applied, 1 need a restart")),
        (east, "acts", ("certificates.load", GATEWAY, None, "tls", None)),
        (east, "acts", ("limit", who, 'west rate="200Mbit"', "control", "ok")),
        (east, "acts", ("withdraw", who, "policy 1:7", "control", "model*")),
        (east, "acts", ("withdraw", who, "policy 1:1", "control", "ok")),
        (east, "acts", ("drain", GATEWAY, "east", "SIGTERM", "ok")),
        (west, "acts", ("pin", who, "policy 1:1", "control", "ok")),
        (west, "acts", ("unpin", who, "policy", "control", "ok")),
        (west, "acts", ("adopt", who, "policy*", "control", None)),
        (east, "versions", ("run.open", UID, "policy 1", None, None)),
        (east, "versions", ("publish", UID, "policy 1:1", None, None)),
        (east, "versions", ("leave", WEST, "policy 1:1", "link", "begun")),
        (east, "versions", ("version.withdrawn", None, "policy 1:1", None, None)),
        (west, "versions", ("activate", UID, "policy 1:1", None, "ok")),
        (east, "denials", ("session", UID, None, "denied", None)),
        (east, "denials", ("subscribe", WEST, "secret", "link", None)),
    ]
    found = {site.name: rows(site) for site in (east, west)}
    missing = [f"{site.name}: {wanted} in {share}" for site, share, wanted in table
               if not row([r for r in found[site.name] if r["share"] == share], *wanted)]
    if missing:
        raise Failed("\n".join(missing + [str(r) for r in found["east"] + found["west"]]))
    for site in (east, west):
        for share, suffix in (("acts", ""), ("versions", ".versions"), ("denials", ".denials")):
            file = lab.dir / f"{site.name}.audit{suffix}"
            expect(f"mode of {file.name}", file.stat().st_mode & 0o777, 0o600)
            said = lines(file)
            expect(f"share of {file.name}", {line["share"] for line in said} <= {share}, True)
            for r in (r for r in found[site.name] if r["share"] == share):
                same = [line for line in said if all(line[key] == r[key] for key in ("action", "identity", "object", "origin", "result"))]
                expect(f"{file.name} has {r}", sum(line["count"] for line in same) >= r["count"], True)


@scenario
def a_file_that_is_not_ours_is_not_written(lab):
    """P8: audit.file leads elsewhere by a link: the gateway does not start, and says why."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    target = lab.dir / "elsewhere"
    target.write_text("")
    os.symlink(target, lab.dir / "audit")
    east.extra["audit"] = {"file": str(lab.dir / "audit")}
    east.start(wait=False)
    wait_for("it says why", lambda: east.daemon.logged("start.failed", "what=audit.file"))
    wait_for("it ends", lambda: not east.daemon.alive())
    expect("nothing was written", target.read_text(), "")


if __name__ == "__main__":
    sys.exit(main())
