"""Models by pattern: a new name needs no edit at any site.

Covers: gateway/daemon/models/model_wake.c gateway/daemon/models/model_life.c gateway/daemon/models/quota.c gateway/cli/config_model.c
"""

import json
import sys

from harness import Rollout, Trainer, Worker, expect, main, scenario, up, wait_for


def two_sites(lab, **model):
    """East is home of `lora-*`; west follows the pattern, and dials."""
    east, west, _ = lab.east_west(through_link=False)
    east.models["lora-*"] = dict(home="east", **model)
    west.models["lora-*"] = dict(home="east")
    west.subscribe.append(("lora-*", ["east"]))
    return east, west


def trainer(lab, site, path, model):
    return Trainer(lab, site, path, names=(f"{model}-0", f"{model}-1"), key=f"run-{model}", model=model)


def counts_for(site, model, *options):
    return json.loads(site.cli("config", "show", "--model", model, "--json", *options).stdout)


@scenario
def keys_are_of_the_row_that_counts(lab):
    """P10: the name of one model may begin another's, and a dot is a letter of a name."""
    east = lab.site("east")
    east.models["llama-3"] = dict(home="east", keep=3)
    east.models["llama-3.1"] = dict(home="east", keep=2)
    path = lab.dir / "east.yaml"
    path.write_text(east.config_text())
    values = {model: json.loads(lab.tombolo("config", "show", "--model", model, "--json", path).stdout)["values"] for model in east.models}
    expect("keys", *(sorted(of) for of in values.values()))
    expect("keep", [values[model]["keep"]["value"] for model in values], ["3", "2"])


@scenario
def a_new_name_crosses_without_an_edit(lab):
    """P2 P4: it crosses to a site that never heard of it; after a restart of both its next run is a newer one."""
    east, west = two_sites(lab)
    up(east, west)
    path = lab.weights(1)[0]
    first = trainer(lab, east, path, "lora-7")
    uid = first.publish(1)
    west.wait_holds(uid, "lora-7")
    reader = Rollout(lab, west, "reader", path, model="lora-7")
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    for site in (east, west):
        said = counts_for(site, "lora-7")
        expect(f"which row counts at {site.name}", (said["rule"], said["pattern"]), ("models.lora-*", True))
    expect("what west follows it by", counts_for(west, "lora-7")["subscribe"], "lora-*")
    expect("its home", counts_for(west, "lora-7", west.dir / "tombolod.yaml")["values"]["home"]["value"], "east")
    expect("of a name that no row matches", west.cli("config", "show", "--model", "other", check=False).returncode != 0, True)
    stranger = Worker(lab, "stranger", east)
    stranger.refused("peer_denied", "run", model="other-7", key="k")

    for rank in first.ranks:
        rank.ok("close")
    east.restart()
    west.restart()
    west.wait_holds(uid, "lora-7")
    again = Trainer(lab, east, path, names=("later0", "later1"), key="another run", model="lora-7")
    expect("its run is newer", again.runs[0]["run_order"] > first.runs[0]["run_order"], True)
    west.wait_holds(again.publish(2), "lora-7")


@scenario
def a_quota_refuses_by_name(lab):
    """P10: versions of all models of a pattern count together, and a model that goes on is not refused."""
    east, west = two_sites(lab, keep=1, quota={"versions": 2})
    up(east, west)
    path = lab.weights(1)[0]
    one, two = (trainer(lab, east, path, name) for name in ("lora-1", "lora-2"))
    for t in (one, two):
        west.wait_holds(t.publish(1), t.model)
    three = trainer(lab, east, path, "lora-3")
    reply = three.ranks[0].refused("site_nomem", "publish", model="lora-3", run=three.runs[0]["run"], number=1, shard=0, shards=2)
    expect(f"it names the quota ({reply['error']})", "models.lora-*.quota.versions" in reply["error"], True)
    expect("a line of the log", len(east.daemon.logged("quota.refused", "model=lora-3")), 1)
    expect("counted", east.counters()["quotas_refused"] >= 1, True)
    west.wait_holds(one.publish(2), "lora-1")
    east.cli("withdraw", "lora-2", "1")
    wait_for("the version has left", lambda: not east.holds(east.versions("lora-2")[0]["uid"], "lora-2") if east.versions("lora-2") else True)
    west.wait_holds(three.publish(1), "lora-3")


@scenario
def a_quota_bounds_what_crosses(lab):
    """P7 P10: a version beyond the quota waits, the site says which quota it is, and a reload that raises it lets it in."""
    east, west = two_sites(lab)
    west.models["lora-*"]["quota"] = {"versions": 1}
    up(east, west)
    path = lab.weights(1)[0]
    west.wait_holds(trainer(lab, east, path, "lora-1").publish(1), "lora-1")
    second = trainer(lab, east, path, "lora-2").publish(1)
    wait_for("west says why", lambda: west.daemon.logged("arena.refused", "models.lora-*.quota.versions: its models have 1 of 1"))
    expect("west has no byte of it", west.version(second, "lora-2")["held_bytes"], 0)
    west.models["lora-*"]["quota"] = {"versions": 2}
    (west.dir / "tombolod.yaml").write_text(west.config_text())
    west.cli("reload")
    west.wait_holds(second, "lora-2")


@scenario
def a_pattern_comes_by_a_reload(lab):
    """P9: both sites take it while they run; what it matches is published at once."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    east.wait_link("west")
    path = lab.weights(1)[0]
    for site in (east, west):
        site.models["exp-*"] = dict(home="east")
    west.subscribe.append(("exp-*", ["east"]))
    for site in (east, west):
        (site.dir / "tombolod.yaml").write_text(site.config_text())
        said = json.loads(site.cli("reload", "--json").stdout)
        expect(f"applied at {site.name}", (said["restart"], said["errors"]), (0, []))
    uid = trainer(lab, east, path, "exp-a").publish(1)
    west.wait_holds(uid, "exp-a")
    expect("no link went down", east.daemon.logged("link.down"), [])


if __name__ == "__main__":
    sys.exit(main())
