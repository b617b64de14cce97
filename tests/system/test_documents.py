#!/usr/bin/env python3
"""What the documents say of a running gateway is so: fields of the control socket, counters."""

import re
import sys

from harness import SOURCE, Failed, Rollout, Trainer, expect, main, scenario, up, wait_for


def tables(text):
    """{heading or `name[]` before a table: [names in its first column]}"""
    found, title = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif re.match(r"`\w+\[\](\.\w+)?`:", line):
            title = line[1:line.index("`", 1)].replace("[]", "")
        elif line.startswith("| `"):
            found.setdefault(title, []).extend(re.findall(r"`(\w+)`", line.split("|")[1]))
    return found


def same_names(what, served, documented):
    expect(f"{what}: served, but not in the document", sorted(set(served) - set(documented)), [])
    expect(f"{what}: in the document, but not served", sorted(set(documented) - set(served)), [])


@scenario
def the_control_page_is_what_is_served(lab):
    """P10: an operator's program that was written after docs/control.md finds each field, and no other."""
    east, west, _ = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1, path)
    west.wait_holds(uid)
    rollout = Rollout(lab, west, "w0", path)
    rollout.stage(uid)
    rollout.activate(uid)
    wait_for("west says that it activated it", lambda: any(s["activated"] for s in east.version(uid)["sites"]))

    chains = west.control("chains", model="policy")["chains"]
    page = tables((SOURCE / "docs/control.md").read_text())
    status = west.control("status")
    same_names("status", set(status) - {"schema", "ok"}, page["status"])
    for name in ("links", "models", "sessions"):
        if not status[name]:
            raise Failed(f"status: {name} is empty")
        for row in status[name]:
            same_names(f"{name}[]", row, page[name])
    for row in status["links"]:
        same_names("links[].limit", row["limit"], page["links.limit"])
    expect("chains of one version with one worker", [len(c["members"]) for c in chains], [2])
    same_names("chains", chains[0], page["chains"])
    same_names("members[]", set(chains[0]["members"][0]) | set(chains[0]["members"][1]), page["members"])
    arena = re.search(r"^\| `arena` .*$", (SOURCE / "docs/control.md").read_text(), re.M).group(0)
    same_names("arena", status["arena"], set(re.findall(r"`(\w+)`", arena)) - {"arena"})
    for site, inner in ((west, "workers"), (east, "sites")):
        version = site.version(uid)
        same_names("versions", version, page["versions"])
        if not version[inner]:
            raise Failed(f"versions: {inner} is empty")
        for row in version[inner]:
            same_names(f"{inner}[]", row, page[inner])


@scenario
def each_counter_has_its_advice(lab):
    """P10: no counter rises without a line in docs/operations.md that says what to do."""
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    text = (SOURCE / "docs/operations.md").read_text()
    same_names("counters", site.counters(), tables(text)["Counters"])


if __name__ == "__main__":
    sys.exit(main())
