#!/usr/bin/env python3
"""`tombolo gc`: versions that nothing holds go, and why the rest stays (P7 P10).

Covers: gateway/daemon/control/gc_acts.c gateway/cli/operator/gc_command.c
"""

import contextlib
import json
import sqlite3
import sys

from bundles import DRY, acts
from harness import Trainer, expect, main, scenario, wait_for


def old_rows(site, count):
    """Rows of the record that are older than audit.days, which the hourly look did not see yet."""
    store = site.extra["store"]["path"]
    with contextlib.closing(sqlite3.connect(store, timeout=60)) as db, db:
        for i in range(count):
            db.execute("INSERT INTO record(wall_ms,minute,share,action,identity,object,origin,result,count,bytes) "
                       "VALUES(?,NULL,0,'test','nobody','old','test','ok',1,100)", (i + 1,))


@scenario
def versions_that_nothing_holds_go(lab):
    """P7 P10: a dry run changes nothing. A real one drops old rows of the record and keeps the head,
    and the act has its row with the reason."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=1)
    east.extra["store"] = {"path": str(lab.arena_dir / "east.sqlite")}
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    for number in (1, 2):
        east.wait_holds(trainer.publish(number))
    wait_for("the first one left", lambda: [v["number"] for v in east.versions() if v["held_bytes"] > 0] == [2])
    old_rows(east, 3)
    said = json.loads(east.cli("gc", "--dry-run", "--json").stdout)
    expect("what would go", (said["going"], said["going_bytes"], said["audit_rows"], said["dry_run"]), (0, 0, 3, True))
    expect("what stays", [(v["version"], v["goes"], v["why"]) for v in said["versions"]], [("1:2", False, "the head of its model")])
    text = east.cli("gc", "--dry-run").stdout
    expect("as text", text.startswith(f"{DRY}0 versions (0 B) and 3 rows of the audit record would go\n  policy 1:2  "), True)
    expect("nothing went", json.loads(east.cli("gc", "--dry-run", "--json").stdout)["audit_rows"], 3)
    done = json.loads(east.cli("gc", "--reason", "a full disk", "--json").stdout)
    expect("what went", (done["audit_rows"], done["dry_run"]), (3, False))
    expect("what is left", json.loads(east.cli("gc", "--dry-run", "--json").stdout)["audit_rows"], 0)
    expect("the record", acts(east), [("gc", 'reason="a full disk"')])
    expect("the head", [v["number"] for v in east.versions() if v["held_bytes"] > 0], [2])


if __name__ == "__main__":
    sys.exit(main())
