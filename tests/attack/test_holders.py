"""Those who may speak, and claim to hold what they do not: a worker, and a peer. Only a holder's own
word about its own copy counts (P3), and none of them moves another's group (P2).

Covers: gateway/catalog/rules/version_rules.c gateway/catalog/rules/unpublish_rules.c
"""

import os
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from claims import Session  # noqa: E402
from forger import east_of, honest_link  # noqa: E402
from harness import Failed, Rollout, Trainer, expect, follow, main, scenario, wait_for  # noqa: E402
from hostile import HELLO, PEER_DENIED, PING, PONG, REPLY, Connection, frame, link_hello, span, text, tls  # noqa: E402
from tally import tally  # noqa: E402

RUN_OPEN, RUN, UNSUBSCRIBE, STAGE, MANIFESTS, STATUS, STATUS_TEXT = 5, 6, 12, 16, 17, 31, 32


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
    tally("holdings that a reader claims", 1)


def report(site, state, uid):
    return frame(19, uid + text(site) + bytes([state]))


def state_of(site, serial, uid):
    """STATE: that site holds version 1 of policy, and has activated it."""
    held = uid + struct.pack("<QQQQB", 1, 1, 100, 100, 7)
    return frame(32, text(site) + text("policy") + bytes([1]) + struct.pack("<QQBHQQQQQIQQQQ", 1, serial, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0) + span(held))


@scenario
def a_peer_speaks_for_no_other_site(lab):
    """P3 P10: north says that west, whose link is down, has activated a version, and that sixty sites that do not exist hold it."""
    forger, east = east_of(lab)
    me = f"unix:{os.getuid()}"
    east.models["policy"].update(publish=[me], read=[me, "tombolo://west/*", "tombolo://north/*"], durable=["west"])
    east.peer_keys["north"] = {"speaks_for": ["island"]}
    east.start()
    paths = lab.weights(1)
    trainer = Trainer(lab, east, paths[0])
    uid = trainer.publish(1)
    east.wait_holds(uid)
    link, _ = honest_link(forger, (lab.address, east.port), "north")
    raw = bytes.fromhex(uid)
    for site in ["island", "west"] + [f"made-up-{i}" for i in range(60)]:
        link.send(report(site, 1, raw) + report(site, 2, raw) + state_of(site, 1, raw))
    link.send(frame(PING, bytes(8)))
    expect("all was heard", link.answer(passing=set(range(1, 64)) - {PONG}), PONG)
    known = {r["site"] for r in east.version(uid)["sites"] if r["known"]}
    expect("sites that are listed as holders", known - {"east"}, {"island"})
    trainer.ranks[0].refused("timeout", "wait_site", uid=uid, site="west", state=1, timeout_ms=200)
    expect("lines", east.daemon.log_path.read_text().count("link.report_refused"), 1)
    if east.counters()["reports_refused"] < 61:
        raise Failed("the reports were not counted")
    tally("reports about other sites", 62 * 3)


@scenario
def a_publisher_fences_no_run_of_another(lab):
    """P8: a worker that may publish opens a run of its own over the trainer's. It is refused, the trainer goes on, and status names the owner."""
    forger, east = east_of(lab)
    me = f"unix:{os.getuid()}"
    east.models["policy"].update(publish=[me, "tombolo://east/worker/*"], read=[me], may_fence=["tombolo://east/worker/heir"])
    east.start()
    paths = lab.weights(3)
    trainer = Trainer(lab, east, paths[0])
    trainer.publish(1)

    def opens(name, key):
        session = Session(lab, forger, east, name)
        session.requests += 1
        session.connection.send(frame(RUN_OPEN, text("policy") + text(key) + bytes([0]) + bytes(8), request=session.requests))
        return session.connection.answer(), session.connection.answered
    kind, said = opens("w0", "mine")
    expect("the answer", (kind, struct.unpack_from("<i", said)[0] if kind == REPLY else None), (REPLY, PEER_DENIED))
    expect(f"it names the key ({said})", b"models.policy.may_fence" in said and me.encode() in said, True)
    trainer.publish(2, paths[1])
    expect("the heir opens one", opens("heir", "mine")[0], RUN)
    trainer.ranks[0].refused("fenced", "publish", model="policy", run=trainer.runs[0]["run"], number=3, shard=0, shards=2)
    runs = [(r["opened_by"], r["fenced"], r["fenced_by"]) for r in east.control("status")["models"][0]["runs"]]
    heir = "tombolo://east/worker/heir"
    expect("runs", runs, [(heir, False, ""), (me, True, heir)])
    east.restart()
    expect("runs after a restart", [(r["opened_by"], r["fenced_by"]) for r in east.control("status")["models"][0]["runs"]], [(heir, ""), (me, heir)])
    tally("runs of another that a publisher fences", 1)


@scenario
def a_member_that_claims_a_number_moves_no_group(lab):
    """P2: a member claims to compute from number 2^64 - 1 and leaves. The ranks of the group, of one identity, go on; a worker of another identity gets
    into no group of theirs, and is told why."""
    forger, east = east_of(lab)
    me = f"unix:{os.getuid()}"
    east.models["policy"].update(publish=[me], read=[me, "tombolo://east/worker/*"], groups=["tombolo://east/worker/rank-*"])
    east.start()
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    first = trainer.publish(1)
    east.wait_holds(first)
    ranks = [Rollout(lab, east, f"r{i}", paths[0], group="engine", index=i, count=2, host=f"host{i}") for i in range(2)]
    follow(ranks, first, paths[0])
    liar = Session(lab, forger, east, "w0")
    ranks[1].worker.ok("close")
    expect("a stranger in the ranks' group", liar.subscribe("policy", "engine", 1, 2, bytes(range(16)), 1, 2**64 - 1), PEER_DENIED)
    said = liar.connection.answered.decode(errors="replace")
    expect(f"the answer names the key ({said})", "models.policy.groups" in said and me in said, True)
    expect("its own group is free to it", liar.subscribe("policy", "own", 0, 1, bytes(range(16)), 1, 2**64 - 1), 0)
    # One that may come in, and lies: its word holds nobody else.
    members = [Session(lab, forger, east, f"rank-{i}") for i in range(3)]
    expect("rank-0 opens the group", members[0].subscribe("policy", "pair", 0, 2), 0)
    expect("rank-1, of the same pattern", members[1].subscribe("policy", "pair", 1, 2, bytes(range(16)), 1, 2**64 - 1), 0)
    expect("and leaves", members[1].asked(UNSUBSCRIBE, struct.pack("<I", 1)), 0)
    expect("rank-2 takes its place", members[2].subscribe("policy", "pair", 1, 2), 0)
    for member in (members[0], members[2]):
        expect("a real rank stages version 1", member.asked(STAGE, struct.pack("<I", 1) + bytes.fromhex(first), MANIFESTS), 0)
    ranks[1] = Rollout(lab, east, "r1", paths[0], group="engine", index=1, count=2, host="host1")
    second = trainer.publish(2, paths[1])
    follow(ranks, second, paths[1])
    tally("numbers that a member claims", 3)


@scenario
def names_are_told_to_those_who_may_have_them(lab):
    """P8: east is home of `classified`, which west and the worker w0 may not read. Neither hears its name; north and w1 do."""
    forger, east = east_of(lab)
    east.models["classified"] = dict(home="east", publish=[f"unix:{os.getuid()}"], read=["tombolo://north/*", "tombolo://east/worker/w1"])
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0], model="classified")
    east.wait_holds(trainer.publish(1), model="classified")

    def told(site, model):
        link, _ = honest_link(forger, (lab.address, east.port), site)
        link.send(frame(5, text(model) + text("east")) + frame(PING, bytes(8)))
        said = b""
        while True:
            kind, payload = link.receive()
            if kind == PONG:
                return said
            said += payload
    expect("west hears of it", b"classified" in told("west", "policy"), False)
    expect("north does", b"classified" in told("north", "classified"), True)

    def shown(name):
        session = Session(lab, forger, east, name)
        session.asked(STATUS, text("site"), STATUS_TEXT)
        return session.connection.answered
    expect("w0's status names it", b"classified" in shown("w0"), False)
    expect("and names what it may read", b"policy" in shown("w0"), True)
    expect("w1's status names it", b"classified" in shown("w1"), True)
    tally("names that are not for the asker", 2)


@scenario
def an_incarnation_near_the_end_locks_nobody_out(lab):
    """P6: a party with west's key says incarnations near 2^64. West's gateway, which has a low one, comes in all the same."""
    forger, east = east_of(lab)
    west = lab.site("west")
    west.models["policy"] = dict(home="east")
    west.peers["east"] = f"{lab.address}:{east.port}"
    east.start()
    to, context = (lab.address, east.port), tls(forger.west.folder / "ca.crt", forger.west.folder / "gw.crt", forger.west.key)
    for incarnation in (2**64 - 1, 2**64 - 2, 2**63, 2**40):
        with Connection(to, context) as liar:
            liar.send(frame(HELLO, link_hello(incarnation=incarnation)))
            liar.answer()
    west.start()
    west.wait_link("east")
    tally("incarnations near the end", 4)


if __name__ == "__main__":
    sys.exit(main())
