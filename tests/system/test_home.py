"""A home that lost its store learns which runs other sites remember before it opens one, or
refuses and names them.

Covers: gateway/daemon/sessions/home_runs.c wan/link/traffic/link_runs.c
Covers: gateway/catalog/run_asking.c
"""

import signal
import sqlite3

from harness import Failed, Rollout, Trainer, Worker, expect, main, scenario, up, wait_for


def replaced(site):
    """The machine is another one: no store, no arena. It comes without --new-home, as after any
    reboot."""
    site.kill()
    for path in [site.arena_path, *site.dir.glob("store.sqlite*")]:
        path.unlink()


def one_life(lab, site, path, run, number):
    """A trainer opens a run, publishes one version and is gone: its library would open the run
    again at another gateway. The uid."""
    trainer = Trainer(lab, site, path, names=(f"{run}a", f"{run}b"), key=run)
    uid = trainer.publish(number)
    site.wait_holds(uid)
    for peer in site.peers:
        lab.sites[[s.name for s in lab.sites].index(peer)].wait_holds(uid)
    for rank in trainer.ranks:
        rank.kill()
    return uid


def run_of(site, uid):
    return site.version(uid)["run"]


@scenario
def a_home_on_a_new_machine_goes_on_above_its_old_runs(lab):
    """P2 P10: the followers' word makes the next run newer than all that they remember, and they
    take it."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    for number in (10, 11, 12):
        last = one_life(lab, east, path, f"run-{number}", number)
    expect("the last run", run_of(west, last), 3)
    replaced(east)
    east.start()
    uid = Trainer(lab, east, path, key="run-new").publish(1)
    west.wait_holds(uid)
    expect("the new run", run_of(west, uid), 4)
    if not east.daemon.logged("home.told", "peer=west", "run=3", "number=12"):
        raise Failed("the log does not tell what west remembers")
    expect("runs below", (east.counters()["runs_below"], west.counters()["runs_below"]), (0, 0))


@scenario
def a_first_home_whose_peers_are_up_waits_for_nobody(lab):
    """Nobody remembers anything, and says so."""
    east, west, _ = lab.east_west(through_link=False)
    east.new_home = False
    up(east, west)
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    expect("the first run", run_of(east, uid), 1)
    wait_for("it was asked", lambda: east.daemon.logged("home.told", "peer=west", "run=0"))
    east.restart()  # the store knows its runs now
    expect("asks no more", east.daemon.logged("home.asking"), [])


@scenario
def a_new_home_refuses_a_run_while_a_peer_is_silent(lab):
    """P10: after 30 s at most, by name and reason; --new-home overrides, and then both ends say
    what that did."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    one_life(lab, east, path, "run-a", 1)
    one_life(lab, east, path, "run-b", 1)
    replaced(east)
    west.arguments = ["--protocol-max", "2"]
    west.restart()
    east.start()
    east.wait_link("west")
    rank = Worker(lab, "rank", east)
    reply = rank.refused("site_doubt", "run", model="policy", key="run-new")  # at once: that peer will never answer
    for words in ("this home's store is new", "west (speaks protocol 2)", "--new-home"):
        expect(f"{words!r} in {reply['error']!r}", words in reply["error"], True)
    west.kill()
    wait_for("the link is down", lambda: east.link("west")["state"] != "up")
    reply = rank.refused("site_doubt", "run", model="policy", key="run-new")
    expect(f"the peer that is down in {reply['error']!r}", "west (down)" in reply["error"], True)
    expect("counted", east.counters()["runs_refused"], 2)
    expect("told", len(east.daemon.logged("run.refused", "model=policy", "no_answer_from=")), 2)
    east.kill()
    east.arguments = ["--new-home"]
    east.start()
    trainer = Trainer(lab, east, path, key="run-new")
    expect("the run", trainer.runs[0]["run_order"], 1)
    west.arguments = []
    west.start()
    for site, words in ((west, "home=east"), (east, "peer=west")):
        wait_for(f"{site.name} says so", lambda: site.daemon.logged("run.below", words, "run_at_home=1", "run_remembered=2"))
        wait_for("and counts it", lambda: site.counters()["runs_below"] == 1)


@scenario
def a_worker_remembers_the_runs_of_its_home(lab):
    """No other site is there to tell, and a rollout here goes on with what it computes with."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    path = lab.weights(1)[0]
    for number in (4, 5):
        uid = one_life(lab, east, path, f"run-{number}", number)
    rollout = Rollout(lab, east, "rollout", path)
    rollout.stage(uid)
    rollout.activate(uid)
    replaced(east)
    east.start()
    wait_for("the rollout tells", lambda: east.daemon.logged("home.told", "worker=1", "run=2", "number=5"))
    expect("the new run", Trainer(lab, east, path, key="run-new").runs[0]["run_order"], 3)


@scenario
def a_stale_run_key_does_not_shut_out_the_current_run(lab):
    """P2 P10: At a home without a store no key is known. A trainer that was shut out lives on,
    and its library opens its run again when the gateway is back. Whether it comes first or last,
    the current trainer goes on, and the other hears why not."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    old = Worker(lab, "old", east)
    old.ok("run", model="policy", key="run-a")
    new = Trainer(lab, east, path, key="run-b")
    west.wait_holds(new.publish(1))
    for number, last in ((2, [old]), (3, new.ranks)):
        replaced(east)
        for worker in last:
            worker.signal(signal.SIGSTOP)
        east.start()
        east.wait_link("west")
        if old in last:
            new.runs = [rank.ok("run", model="policy", key="run-b") for rank in new.ranks]
        else:
            reply = old.refused("fenced", "run", model="policy", key="run-a")
            for words in ("run 1 of policy", "run 3 is newer"):
                expect(f"{words!r} in {reply['error']!r}", words in reply["error"], True)
        for worker in last:
            worker.signal(signal.SIGCONT)
        wait_for("the old one hears why not", lambda n=number: len(old.logged("session.announce_refused", "status=fenced")) == n - 1)
        new.runs = [rank.ok("run", model="policy", key="run-b") for rank in new.ranks]
        uid = new.publish(number)
        west.wait_holds(uid)
        expect("the run", run_of(west, uid), number + 1)


@scenario
def a_store_that_was_put_back_is_doubted(lab):
    """A copy of the store from run 1 comes back: run 1's key does not go on below run 2, which
    west remembers."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    one_life(lab, east, path, "run-a", 5)
    copy = lab.dir / "backup.sqlite"
    with sqlite3.connect(east.dir / "store.sqlite") as db, sqlite3.connect(copy) as to:
        db.backup(to)
    copy.chmod(0o600)
    one_life(lab, east, path, "run-b", 6)
    replaced(east)
    copy.chmod(0o600)
    copy.rename(east.dir / "store.sqlite")
    east.start()
    if not east.daemon.logged("home.asking", "a copy that was put back"):
        raise Failed("the log does not say that the store was put back")
    Worker(lab, "late", east).refused("fenced", "run", model="policy", key="run-a")
    uid = Trainer(lab, east, path, key="run-c").publish(1)
    west.wait_holds(uid)
    expect("the new run", run_of(west, uid), 3)


@scenario
def a_store_that_was_put_back_in_place_is_found_by_its_peer(lab):
    """The file is the same one, and what is in it is of a life before: west has seen a later one."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    one_life(lab, east, path, "run-a", 5)
    copy = lab.dir / "backup.sqlite"
    with sqlite3.connect(east.dir / "store.sqlite") as db, sqlite3.connect(copy) as to:
        db.backup(to)
    for _ in range(2):
        east.restart()
        east.wait_link("west")
    one_life(lab, east, path, "run-b", 6)
    east.kill()
    east.arena_path.unlink()
    with sqlite3.connect(copy) as db, sqlite3.connect(east.dir / "store.sqlite") as to:
        db.backup(to)
    east.start()
    wait_for("it is doubted", lambda: east.daemon.logged("home.doubted", "model=policy"))
    uid = Trainer(lab, east, path, key="run-c").publish(1)
    west.wait_holds(uid)
    expect("the new run", run_of(west, uid), 3)


if __name__ == "__main__":
    raise SystemExit(main())
