"""The configuration is read again while versions cross: what can change without a restart does, with no stream closed, and a file
that is not good changes nothing (P6, P8, P9, P10).

Covers: gateway/daemon/reload.c gateway/daemon/reload_rooms.c gateway/cli/operator/reload_command.c
Covers: gateway/cli/config_show_commands.c
"""

import json
import shutil
import signal
import sys

from harness import Failed, Trainer, expect, main, scenario, wait_for


def written(site, text=None):
    (site.dir / "tombolod.yaml").write_text(site.config_text() if text is None else text)


def reload(site, *options, code=0):
    done = site.cli("reload", "--json", *options, check=False)
    expect(f"exit code of reload at {site.name} ({done.stdout}{done.stderr})", done.returncode, code)
    said = json.loads(done.stdout)
    return {row["key"]: (row["kind"], row["effect"]) for row in said["changes"]}, said


def streams(site, peer):
    (link,) = (row for row in site.control("streams")["links"] if row["site"] == peer)
    return sorted(s["stream"] for s in link["streams"] if s["open"])


def runs_with(site):
    return site.control("config")["document"]


def same_streams(sites, before):
    for (site, peer), ids in zip(sites, before):
        expect(f"streams of {site.name} to {peer}", streams(site, peer), ids)
        expect(f"{site.name}: the link went down", site.daemon.logged("link.down", f"tombolo://{peer}/"), [])


@scenario
def everything_live_changes_while_a_version_crosses(lab):
    """P6 P9: models, rights, keep, a rate, a subscription, a peer that comes and goes; the version arrives over the streams that it had."""
    east, west, _ = lab.east_west(through_link=False)
    east.peer_keys["west"] = {"rate": "2Mbit"}
    for site in (east, west):
        site.extra["link"] = {"heartbeat_ms": 1000, "down_ms": 60000, "stream_idle_ms": 60000}
        site.start()
    east.wait_link("west")
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_held_some(uid, 0.01)
    both = ((east, "west"), (west, "east"))
    before = [streams(*pair) for pair in both]
    shutil.copy(lab.pki_dir("north") / "ca.crt", lab.pki_dir("east") / "north.crt")

    east.models["policy"].update(keep=3, read=["unix:*", "tombolo://west/*", "tombolo://north/*"])
    east.models["other"] = {"home": "east"}
    east.peer_keys["west"] = {"rate": "3Mbit"}
    east.peers["north"] = None
    east.extra["log"] = {"level": "debug"}
    text = east.config_text().replace(str(lab.pki_dir("north") / "ca.crt"), str(lab.pki_dir("east") / "north.crt"))
    written(east, text)
    dry, _ = reload(east, "--dry-run")
    expect("a dry run changes nothing", "other" in runs_with(east), False)
    changes, said = reload(east, "--reason", "a new experiment")
    expect("the dry run said it", dry, changes)
    expect("what changed", changes, {
        "log.level": ("changed", "live"), "peers.west.rate": ("changed", "live"), "peers.north": ("added", "live"),
        "models.policy.keep": ("changed", "live"), "models.policy.read": ("changed", "live"), "models.other": ("added", "live")})
    expect("applied", (said["applied"], said["restart"], said["errors"]), (6, 0, []))
    west.models["other"] = {"home": "east"}
    west.subscribe.append(("other", ["east"]))
    written(west)
    west.daemon.signal(signal.SIGHUP)
    wait_for("SIGHUP does the same", lambda: west.daemon.logged("info reload.applied", "models.other subscribe.other"))

    good = runs_with(east)
    for broken in (text.replace("keep: 3", "keep: 0", 1), text.replace("keep: 3", "keep: 4", 1).replace("north.crt", "no.crt"),
                   text.replace("keep: 3", "keep: 4", 1).replace("gw.crt", "ca.crt", 1), "site: ["):
        written(east, broken)
        _, said = reload(east, code=1)
        expect(f"errors ({said['errors']})", (len(said["errors"]) > 0, said["applied"]), (True, 0))
        expect("nothing changed", runs_with(east), good)
    expect("refused", east.counters()["reloads_refused"], 4)

    written(east, text.replace("heartbeat_ms: 1000", "heartbeat_ms: 1100", 1).replace("keep: 3", "keep: 4", 1))
    changes, _ = reload(east, code=9)
    expect("half of it needs a restart", changes, {"link.heartbeat_ms": ("changed", "restart"), "models.policy.keep": ("changed", "live")})
    expect("config diff", east.cli("config", "diff", east.dir / "tombolod.yaml", check=False).returncode, 8)

    north = lab.site("north")
    north.models["policy"] = {"home": "east"}
    north.peers["east"] = f"{lab.address}:{east.port}"
    north.subscribe.append(("policy", ["east"]))
    north.listen = False
    north.start()
    east.wait_link("north")
    v = west.version(uid)
    if v["held_bytes"] == v["bytes"]:
        raise Failed("the version was whole before: nothing was tried")
    same_streams(both, before)

    other = Trainer(lab, east, path, names=("other0", "other1"), key="run-b", model="other").publish(1)
    east.peers.pop("north")
    east.peer_keys["west"] = {"rate": "none"}
    written(east)
    changes, _ = reload(east)
    expect("north goes", changes["peers.north"], ("removed", "live"))
    expect("peers", [link["site"] for link in east.control("status")["links"]], ["west"])
    west.wait_holds(uid)
    west.wait_holds(other, "other")
    same_streams(both, before)
    acts = [json.loads(line) for line in east.cli("audit", "--json", "--action", "reload").stdout.splitlines()]
    results = list(dict.fromkeys(r["result"].split(":")[0] for r in acts))  # a difference may fill several rows
    expect("rows of the record", results[:2], ["6 applied, 0 need a restart; a new experiment", "refused"])


@scenario
def a_right_helps_no_peer_that_says_another_home(lab):
    """P6 P8: names that were refused for both reasons are each looked at once when the right comes, and stay refused."""
    east, west, _ = lab.east_west(through_link=False)
    names = ["exp-a", "exp-b", "exp-c"]
    for name in names:
        east.models[name] = {"home": "east", "read": ["unix:*"]}
        west.models[name] = {"home": "west"}  # so west asks east for it
    for site in (east, west):
        site.start()
    east.wait_link("west")

    def refused():
        (link,) = east.control("status")["links"]
        return sorted(link["refused_models"])

    wait_for("east refuses them", lambda: refused() == names)
    for name in names:
        east.models[name]["read"] = ["unix:*", "tombolo://west/*"]
    written(east)
    changes, _ = reload(east)
    expect("the right", changes["models.exp-a.read"], ("changed", "live"))
    expect("they stay refused", refused(), names)


if __name__ == "__main__":
    sys.exit(main())
