"""`--dry-run` and `--reason` of what changes something: an act that is tried is refused where the act
would be, and changes nothing; the reason of one that is done is in the audit record (P10).

Covers: gateway/daemon/control/version_commands.c gateway/daemon/control/audit_commands.c
Covers: gateway/daemon/links/peer_limits.c gateway/cli/operator/operator_commands.c
Covers: gateway/cli/operator/pin_commands.c
"""

import contextlib
import json
import os
import subprocess
import sys

from bundles import DRY, acts, refused
from harness import PATIENCE, PATIENCE_S, TOMBOLO, Trainer, expect, main, scenario, wait_for

def states(site):
    return [(v["number"], v["state"], v["pinned"]) for v in site.versions()]


def tried(site):
    """Each is answered as the act would be; what is refused is refused with the same words."""
    for words, says in ((("withdraw", "policy", "1"), "withdrawn everywhere: policy 1:1 (was kept)\n"), (("pin", "policy", "2"), "pinned: policy 1:2\n"),
                        (("unpin", "policy"), "policy: no version was pinned\n"), (("limit", "west", "--rate", "6Mbit"), "west: rate 6Mbit  limit 6Mbit\n")):
        expect(f"{words}", site.cli(*words, "--dry-run").stdout, DRY + says)
        said = json.loads(site.cli(*words, "--dry-run", "--json").stdout)
        expect(f"{words} as JSON", (said["ok"], said["dry_run"]), (True, True))
    for words in (("withdraw", "policy", "9"), ("pin", "policy", "9"), ("rollback", "policy", "2"), ("limit", "north", "--rate", "6Mbit")):
        expect(f"{words}", refused(site, 1, "", *words, "--dry-run").stderr, refused(site, 1, "", *words).stderr)


@scenario
def acts_are_tried_and_have_reasons(lab):
    """P10: withdraw, pin, rollback, unpin and limit."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.peers["west"] = None
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    for number in (1, 2):
        east.wait_holds(trainer.publish(number))
    wait_for("both are kept", lambda: [v["state"] for v in east.versions()] == ["kept", "kept"])
    before = states(east)
    tried(east)
    expect("versions", states(east), before)
    expect("the limit", east.control("limit", peer="west")["limit"]["rate"], "none")
    refusals = [("withdraw", "policy 9"), ("pin", "policy 9"), ("rollback", "policy 2"), ("limit", 'north rate="6Mbit"')]
    expect("rows of what was not only tried", acts(east), refusals)
    expect("adopt", east.control("adopt", model="policy", files=["a"], dry_run=True)["status"], "bad_argument")
    tried_backup = east.control("backup", dry_run=True)
    expect("a backup that is tried", (tried_backup["status"], "store" in tried_backup), ("bad_argument", False))
    expect("rows after it", acts(east), refusals)
    east.cli("pin", "policy", "1", "--reason", "an evaluation")
    expect("a pin that is tried away", east.cli("unpin", "policy", "--dry-run").stdout, f"{DRY}unpinned: policy 1:1\n")
    east.cli("unpin", "policy", "--reason", "it is over")
    east.cli("limit", "west", "--rate", "6Mbit", "--reason", "the day shift")
    east.cli("withdraw", "policy", "1", "--reason", "reward hacking")
    expect("what was done", acts(east)[len(refusals):],
           [("pin", 'policy 1 reason="an evaluation"'), ("unpin", 'policy reason="it is over"'),
            ("limit", 'west rate="6Mbit" reason="the day shift"'), ("withdraw", 'policy 1 reason="reward hacking"')])


@scenario
def a_gateway_is_drained_by_an_operator(lab):
    """P9 P10: tried, then done: it ends with 0, the command waits for that, and the record has one
    row, with the reason."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    east.wait_holds(trainer.publish(1))
    expect("tried", east.cli("drain", "--dry-run", "--wait", "30s").stdout[:len(DRY)], DRY)
    expect("it goes on", east.control("status")["draining"], False)
    said = json.loads(east.cli("drain", "--wait", PATIENCE, "--reason", "a new kernel", "--json").stdout)
    expect("what it said", (said["pid"], said["workers"] >= 1, said["dry_run"]), (east.daemon.popen.pid, True, False))
    expect("its exit code", east.daemon.ended(), 0)
    refused(east, 3, "no gateway answers at", "drain")
    east.start()
    expect("the record", [row for row in acts(east) if row[0] == "drain"], [("drain", 'reason="a new kernel"')])
    expect("rows of it", len(east.cli("audit", "--action", "drain", "--json").stdout.splitlines()), 1)


@contextlib.contextmanager
def slow_to_end(folder):
    """The look of a gateway that was drained: its control socket is gone, and it holds its store until the
    block ends. The question after that of the drain gets a fault, if it comes in time."""
    code = """if True:
        import json, os, socket, sys
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        for answer in ({"ok": True, "pid": os.getpid(), "workers": 0, "drain_ms": 1000}, {"ok": False, "status": "site_nomem", "error": "no"}):
            line = ""
            while not line: # a client that only looks says nothing
                taken, _ = listener.accept()
                line = taken.makefile().readline()
            taken.sendall(json.dumps({"schema": 1, **answer}).encode() + b"\\n")
            if sys.argv[2] == "closes":
                break
        if sys.argv[2] == "closes":
            listener.close()
        sys.stdin.read()
        """
    def begin(way):
        gateway = subprocess.Popen([sys.executable, "-c", code, str(folder / f"{way}.sock"), way], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(gateway)
        gateway.stdout.readline()
        return str(folder / f"{way}.sock")
    started = []
    try:
        yield begin
    finally:
        for gateway in started:
            gateway.communicate(timeout=PATIENCE_S)


@scenario
def a_drain_waits_for_the_process(lab):
    """P9: the control socket closes first, and the store is another's to take once the process is gone.
    Where the process cannot be seen, an answer that is a fault is of a gateway that is there."""
    with slow_to_end(lab.dir) as begin:
        for way, prefix in (("closes", []), ("faults", ["unshare", "--pid", "--fork"] if os.geteuid() == 0 else [])):
            argv = [*prefix, str(TOMBOLO), "drain", "--control", begin(way), "--wait", "1s"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            expect(f"{way}: {done.stderr}", (done.returncode, "did not end within --wait" in done.stderr), (4, True))


if __name__ == "__main__":
    sys.exit(main())
