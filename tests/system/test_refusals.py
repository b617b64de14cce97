"""Who may not, and what does not fit: refused with one line and one counter, nothing lost, nobody dies (P7, P8, P10).

Covers: gateway/daemon/shutdown.c gateway/daemon/main.c
"""

import os
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys

from harness import (PATIENCE_MS, TOMBOLO, TOMBOLOD, Dns, Failed, Lab, Rollout, SlowDisk, SmallDisk, Trainer, Worker, expect, main,
                     read_and_compare, safetensors_table, scenario, up, wait_for)


def refused_link(lab, east, west):
    """Both start, the link does not come up, and east says why in a line."""
    east.start()
    west.start()
    wait_for("a refusal is counted", lambda: refusals(east) + refusals(west) > 0)
    for s, peer in ((east, "west"), (west, "east")):
        if s.link(peer)["state"] == "up":
            raise Failed("the link came up")
        if not s.daemon.alive():
            raise Failed("a daemon died of its peer")


def refusals(site):
    c = site.counters()
    link = next(iter(site.control("status")["links"]), {})
    return c.get("links_refused", 0) + c.get("links_strangers_refused", 0) + (link.get("state") == "refused")


@scenario
def wrong_ca(lab):
    """P8: west's certificate is signed by a CA that east does not know for it."""
    east, west, _ = lab.east_west(through_link=False)
    other = lab.dir / "pki-other"
    lab.tombolo("pki", "init", "--dir", other, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", other, "--out", "gw", "tombolo://west/gw")
    west.trust = other
    refused_link(lab, east, west)


def openssl_pki(folder, site, uri):
    """ca.crt of a site by openssl, without the name constraints that `tombolo pki init` sets, and a gw.crt of `uri`."""
    folder.mkdir()
    def run(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "san").write_text(f"subjectAltName=URI:{uri}\nextendedKeyUsage=serverAuth,clientAuth\n")
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.crt", "-subj", f"/CN={site}", "-days", "2")
    run("req", *ec, "-keyout", "gw.key", "-out", "gw.csr", "-subj", "/CN=gw")
    run("x509", "-req", "-in", "gw.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "san", "-out", "gw.crt")
    (folder / "gw.key").chmod(0o600)
    return folder


@scenario
def a_site_speaks_for_itself_alone(lab):
    """P8: north's CA is trusted at east for north; a certificate for west that it signed is refused all the same."""
    east, west, _ = lab.east_west(through_link=False)
    lab.pki_dir("west")
    lab._pki["north"] = openssl_pki(lab.dir / "pki-north", "north", "tombolo://west/gw")
    east.peers["north"] = None
    west.trust = lab._pki["north"]
    refused_link(lab, east, west)


@scenario
def wrong_site_name(lab):
    """P8: a certificate of the right CA for another gateway name is not the configured peer."""
    east, west, _ = lab.east_west(through_link=False)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "imposter", "tombolo://west/other")
    imposter = lab.dir / "pki-imposter"
    imposter.mkdir()
    for f, t in (("ca.crt", "ca.crt"), ("imposter.crt", "gw.crt"), ("imposter.key", "gw.key")):
        (imposter / t).write_bytes((pki / f).read_bytes())
        (imposter / t).chmod(0o600)
    west.trust = imposter
    config = west.config_text().replace("gateway: gw\n", "gateway: other\n", 1)
    west.config_text = lambda: config
    refused_link(lab, east, west)


@scenario
def expired_certificate(lab):
    """P8: a gateway does not start with a certificate that has expired, and says which."""
    east, west, _ = lab.east_west(through_link=False)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "old", "--days", "1", "--start-days", "-3", "tombolo://west/gw")
    old = lab.dir / "pki-old"
    old.mkdir()
    for f, t in (("ca.crt", "ca.crt"), ("old.crt", "gw.crt"), ("old.key", "gw.key")):
        (old / t).write_bytes((pki / f).read_bytes())
        (old / t).chmod(0o600)
    west.trust = old
    east.start()
    west.start(wait=False)
    expect("exit code", west.daemon.ended(), 1)
    if not any(re.search(r"gw\.crt: the certificate has expired, at 20[0-9-]{8} ", line) for line in west.daemon.logged("start.failed")):
        raise Failed("no line says that the certificate has expired, and when")


@scenario
def homes_that_differ(lab):
    """P8 P10: west takes another site for the model's home; nothing crosses, and east's log says what to change."""
    east, west, _ = lab.east_west(through_link=False)
    west.models["policy"]["home"] = "north"
    up(east, west)
    wait_for("east says so", lambda: east.daemon.logged("link.home_differs", "home_there=north", "home_here=east"))
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    east.wait_holds(uid)
    expect("at west", west.version(uid), None)

    def told():
        """What west refused is west's to count: home asks the others for what may rot here."""
        return east.daemon.logged("link.home_differs") + [l for l in east.daemon.logged("link.denied") if "by=peer" not in l]
    wait_for("a line for each refusal", lambda: len(told()) == east.counters()["denied"])


@scenario
def names_resolve_and_addresses_are_tried_in_turn(lab):
    """P6: the peer is a name with two addresses, on the first of which nobody listens; AAAA is answered with nothing."""
    east, west, _ = lab.east_west(through_link=False)
    dns = Dns({"gw.east.test": ["127.0.0.9", lab.address]})
    west.extra["dns"] = {"servers": f"127.0.0.1:{dns.port}"}
    west.peers["east"] = f"gw.east.test:{east.port}"
    try:
        up(east, west)
        uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
        west.wait_holds(uid)
        if dns.asked == 0:
            raise Failed("nobody asked the name server")
    finally:
        dns.close()


@scenario
def a_worker_without_rights(lab):
    """P8 P10: neither publish nor read without a right; the refusal is counted and logged."""
    east, west, _ = lab.east_west(through_link=False)
    for s in (east, west):
        s.models["policy"]["publish"] = ["unix:64999"]
        s.models["policy"]["read"] = ["tombolo://west/*", "tombolo://east/*"]
    up(east, west)
    w = Worker(lab, "nobody", east)
    w.refused("peer_denied", "run", model="policy", key="k")
    w.refused("peer_denied", "wait", model="policy", kind="latest", timeout_ms=0)
    w.refused("peer_denied", "subscribe", model="policy", group="g")
    w.refused("peer_denied", "run", model="unknown", key="k")
    if east.counters()["denied"] < 4:
        raise Failed("denials are not counted")
    for right in ("publish", "read"):
        if not east.daemon.logged("session.denied", f"models.policy.{right} does not list it"):
            raise Failed(f"no line names the {right} list")


@scenario
def a_peer_without_the_right_is_told_which_list(lab):
    """P8 P10: one line at home has the model, the list and the identity that it lacks."""
    east, west, _ = lab.east_west(through_link=False)
    east.models["policy"]["read"] = [f"unix:{os.getuid()}", "tombolo://north/*"]
    up(east, west)
    line = wait_for("east says so", lambda: east.daemon.logged("link.denied", "model=policy"))[0]
    for words in ("list=models.policy.read", "lacks=tombolo://west/gw"):
        expect(f"{words} in {line}", words in line, True)
    uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    east.wait_holds(uid)
    expect("at west", west.version(uid), None)


@scenario
def a_worker_over_tls(lab):
    """P8: a worker from elsewhere comes with a certificate; one of another CA does not get in."""
    east, west, _ = lab.east_west(through_link=False)
    west.extra["session"] = {"listen": f"{lab.address}:{west.worker_port}"}
    forger = lab.dir / "pki-forger"  # a CA that west takes for east's, and that makes workers of west
    lab.tombolo("pki", "init", "--dir", forger, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", forger, "--out", "w", "tombolo://west/worker/w")
    trusted = lab.pki_dir("east") / "ca.crt"
    trusted.write_bytes(trusted.read_bytes() + (forger / "ca.crt").read_bytes())
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    pki = lab.pki_dir("west")
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "w", "tombolo://west/worker/w")
    tls = dict(gateway=f"{lab.address}:{west.worker_port}", ca=str(pki / "ca.crt"), cert=str(pki / "w.crt"), key=str(pki / "w.key"))
    reader = Rollout(lab, west, "remote", path, host="elsewhere", **tls)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    bad = lab.dir / "pki-bad"
    lab.tombolo("pki", "init", "--dir", bad, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", bad, "--out", "w", "tombolo://west/worker/w")
    stranger = Worker(lab, "stranger")
    reply = stranger.call("open", gateway=f"{lab.address}:{west.worker_port}", name="stranger", ca=str(pki / "ca.crt"),
                          cert=str(bad / "w.crt"), key=str(bad / "w.key"), timeout_ms=3000)
    if reply["status"] == "ok":
        raise Failed("a stranger got in")
    lab.tombolo("pki", "issue", "--dir", lab.pki_dir("east"), "--out", "w", "tombolo://east/worker/w")
    for folder, name, what in ((forger, "w", "the CA of another site made a worker of this one"),
                               (lab.pki_dir("east"), "w", "a worker of another site got in"),
                               (pki, "gw", "a gateway got in as a worker")):
        reply = Worker(lab, f"impostor-{name}-{folder.name}").call(
            "open", gateway=f"{lab.address}:{west.worker_port}", name="impostor", ca=str(pki / "ca.crt"),
            cert=str(folder / f"{name}.crt"), key=str(folder / f"{name}.key"), timeout_ms=3000)
        if reply["status"] == "ok":
            raise Failed(what)


@scenario
def a_version_over_budget(lab):
    """P7 P10: what does not fit is refused with the numbers, and what is there stays."""
    east, west, _ = lab.east_west(through_link=False, arena_mib=32)
    up(east, west)
    path = lab.weights(1)[0]
    rows = safetensors_table(path)
    rank = Worker(lab, "rank", east)
    rank.ok("register", tensors=rows, file=str(path))
    run = rank.ok("run", model="policy", key="k")["run"]
    first = rank.ok("publish", model="policy", run=run, number=1)["uid"]
    west.wait_holds(first)
    big = lab.dir / "big.safetensors"
    count = 48 << 20
    header = b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (count, count)
    big.write_bytes(len(header).to_bytes(8, "little") + header + bytes(count))
    rank.ok("register", memory=1, tensors=safetensors_table(big), file=str(big))
    reply = rank.refused("site_nomem", "publish", model="policy", run=run, number=2, memory=1)
    if not any(ch.isdigit() for ch in reply["error"]):
        raise Failed(f"the refusal has no numbers: {reply['error']}")
    read_and_compare(lab, west, first, path, "reader")


@scenario
def a_version_over_the_budget_of_another_site(lab):
    """P7 P10: what fits at home and not at west is refused there with the numbers, and what west has stays."""
    east, west, _ = lab.east_west(through_link=False)
    west.arena_mib = 32
    up(east, west)
    path = lab.weights(1)[0]
    first = Trainer(lab, east, path).publish(1)
    west.wait_holds(first)
    big = lab.dir / "big.safetensors"
    count = 48 << 20
    header = b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (count, count)
    big.write_bytes(len(header).to_bytes(8, "little") + header + bytes(count))
    east.cli("publish", "policy", big, "--version", 2)
    line = wait_for("west refuses it", lambda: west.daemon.logged("arena.refused", "number=2"))[0]
    if "needed_bytes=" not in line or west.counters()["arena_refused"] == 0:
        raise Failed(f"the refusal has no numbers or is not counted: {line}")
    read_and_compare(lab, west, first, path, "reader")


@scenario
def the_store_cannot_be_written(lab):
    """P10: the store is locked by another process: publishing is refused, what is held is served, and it recovers."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    lock = sqlite3.connect(east.dir / "store.sqlite", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    reply = trainer.ranks[0].call("publish", model="policy", run=trainer.runs[0]["run"], number=2, shard=0, shards=2)
    expect("publish", reply["status"], "site_store")
    reader = Rollout(lab, east, "reader", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    lock.execute("ROLLBACK")
    wait_for("the store recovers", lambda: east.control("status")["store_ok"])
    west.wait_holds(trainer.publish(3))


def publish_refused(trainer, number):
    reply = trainer.ranks[0].call("publish", model="policy", run=trainer.runs[0]["run"], number=number, shard=0, shards=2)
    expect("publish", reply["status"], "site_store")


def store_is_sound(disk):
    with sqlite3.connect(disk.seen / "store.sqlite") as db:
        expect("integrity", db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])


@scenario
def the_store_is_full(lab):
    """P10 P3: the state folder's filesystem is full: publishing is refused with the reason, what is held is served; with
    room again the same version is published, and a kill shows that nothing was lost or half written."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    disk = SmallDisk(lab, east)
    east.start()
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    east.wait_holds(first)
    disk.fill()
    publish_refused(trainer, 2)
    if east.counters()["store_failed"] == 0 or len(east.daemon.logged("store.failed", "free some space")) != 1:
        raise Failed("a full store is not counted and told in one line")
    reader = Rollout(lab, east, "reader", path)
    reader.stage(first)
    reader.activate(first)
    reader.check(path)
    east.control("withdraw", model="policy", version="1")  # what cannot be written yet is written later
    disk.make_room()
    wait_for("the store recovers", lambda: east.control("status")["store_ok"])
    second = trainer.publish(2)
    east.wait_holds(second)
    wait_for("it is kept", lambda: east.version(second)["state"] == "kept")
    east.kill()
    store_is_sound(disk)
    east.start()
    expect("states after the kill", [east.version(u)["state"] for u in (first, second)], ["withdrawn", "kept"])
    expect("held", east.holds(second), True)


@scenario
def the_store_is_read_only(lab):
    """P10 P3: the state folder was remounted read-only while the gateway was away: it says so and ends with 1; writable
    again, it serves what it held and takes the next version."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    disk = SmallDisk(lab, east)
    east.start()
    expect("recovering at the very first start", east.control("status")["recovering"], False)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    east.wait_holds(first)
    east.kill()
    disk.remount("ro")
    east.start(wait=False)
    expect("exit code", east.daemon.ended(), 1)
    if not east.daemon.logged("start.failed", "store.sqlite", "writable"):
        raise Failed("no line names the store and what to do")
    disk.remount("rw")
    east.start()
    expect("recovering after a restart", east.control("status")["recovering"], True)
    expect("held", east.holds(first), True)
    for rank in trainer.ranks:  # the sessions come back by themselves
        rank.ok("wait_site", uid=first, site="east", state=0, timeout_ms=PATIENCE_MS)
    east.wait_holds(trainer.publish(2))
    east.kill()
    store_is_sound(disk)


def answers(worker):
    return bool(select.select([worker.popen.stdout.fileno()], [], [], 0)[0])


def held_publish(trainer, number):
    """The last shard of a version is sealed while the disk is held: rank 1 waits for its answer."""
    trainer.publish_shard(0, number)
    rank = trainer.ranks[1]
    return rank, dict(model="policy", run=trainer.runs[1]["run"], number=number, shard=1, shards=2)


@scenario
def the_disk_takes_its_time(lab):
    """P6 P3: while a sync of the store is held, status answers, the link stays up and a worker goes through a version; the
    version whose ready is on its way to the disk is told to nobody. Then everything follows, also after SIGTERM."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["store"] = {"slow_ms": 600000}
    west.models["policy"]["keep"] = 1
    disk = SlowDisk(east)
    east.start(env=disk.env)
    west.start()
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    west.wait_holds(first)
    reader = Rollout(lab, east, "reader", path)
    rank, shard = held_publish(trainer, 2)
    wait_for("all is on disk", lambda: east.control("status")["store_waiting"] == 0)
    disk.hold()
    rank.send("publish", **shard)
    wait_for("the sync is held", lambda: east.control("status")["store_waiting"] > 0)
    begun = east.control("status")["uptime_s"]
    reader.stage(first)
    reader.activate(first)
    reader.check(path)
    wait_for("three heartbeats", lambda: east.control("status")["uptime_s"] > begun + 1)
    east.wait_link("west")  # it hears its peer: a busy machine may have had it fall silent
    second = next(v for v in east.control("versions")["versions"] if v["number"] == 2)
    expect("saved", second["saved"], False)
    expect("store_ok", east.control("status")["store_ok"], True)
    if answers(rank) or any(v["number"] == 2 for v in west.control("versions")["versions"]):
        raise Failed("version 2 was told before it was durable")
    if east.daemon.logged("version.state", "number=2", "state=ready"):
        raise Failed("version 2 was logged as ready before it was durable")
    disk.let_go()
    expect("publish", rank.receive()["status"], "ok")
    west.wait_holds(second["uid"])
    disk.hold()
    withdrawal = socket.socket(socket.AF_UNIX)
    withdrawal.connect(str(east.control_socket))
    withdrawal.sendall(b'{"schema": 1, "cmd": "withdraw", "model": "policy", "version": "2"}\n')
    wait_for("the withdrawal waits for the disk", lambda: east.version(second["uid"])["state"] == "withdrawn")
    if west.version(second["uid"])["state"] == "withdrawn" or select.select([withdrawal], [], [], 0)[0]:
        raise Failed("a withdrawal was told before it was durable")
    east.daemon.popen.terminate()
    wait_for("it drains", lambda: east.daemon.logged("drain.begin"))
    disk.let_go()
    expect("exit code", east.daemon.ended(), 0)
    if not east.daemon.logged("drain.end", "rows_unwritten=0"):
        raise Failed("the drain did not wait for the disk")
    east.start(env=disk.env)
    expect("after the drain", east.version(second["uid"])["state"], "withdrawn")
    wait_for("west hears of it", lambda: west.version(second["uid"])["state"] == "withdrawn")


@scenario
def the_disk_does_not_answer(lab):
    """P6 P10: a sync that takes longer than store.slow_ms is a store that fails: told once, publishing refused, what is held
    served; when the disk answers, all is written in order."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["store"] = {"slow_ms": 2000, "path": lab.arena_dir / "store.sqlite"}  # where no other sync is slow
    disk = SlowDisk(east)
    east.start(env=disk.env)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    east.wait_holds(first)
    wait_for("all is on disk", lambda: east.control("status")["store_waiting"] == 0)
    disk.hold()
    publish_refused(trainer, 2)
    publish_refused(trainer, 2)
    status = east.control("status")
    expect("store_ok", status["store_ok"], False)
    expect("told", len(east.daemon.logged("store.failed", "store.slow_ms")), 1)
    reader = Rollout(lab, east, "reader", path)
    reader.stage(first)
    reader.activate(first)
    reader.check(path)
    disk.let_go()
    wait_for("the store recovers", lambda: east.control("status")["store_ok"])
    second = trainer.publish(2)
    east.wait_holds(second)
    east.kill()
    east.start()
    expect("held", east.holds(second), True)


@scenario
def the_disk_hangs_at_the_end(lab):
    """P9 P3: the store's disk does not answer any more when SIGTERM comes: the gateway ends all the same, says what is not on the disk and whose
    disk it is, and with 1; what was held is there at the next start."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.root["drain_ms"] = 1000
    east.extra["store"] = {"path": lab.arena_dir / "store.sqlite"}
    disk = SlowDisk(east)
    east.start(env=disk.env)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    first = trainer.publish(1)
    east.wait_holds(first)
    rank, shard = held_publish(trainer, 2)
    wait_for("all is on disk", lambda: east.control("status")["store_waiting"] == 0)
    disk.hold()
    rank.send("publish", **shard)
    wait_for("the sync is held", lambda: east.control("status")["store_waiting"] > 0)
    east.daemon.popen.terminate()
    expect("exit code", east.daemon.ended(), 1)
    if not east.daemon.logged("store.unwritten") or not east.daemon.logged("stop.disk_hangs", "what=store"):
        raise Failed("the end did not say what it left")
    disk.let_go()
    east.start()
    expect("held", east.holds(first), True)


@scenario
def a_damaged_store(lab):
    """P10: a damaged store stops the start with a line that names the file."""
    east, _, _ = lab.east_west(through_link=False)
    (east.dir / "store.sqlite").write_bytes(b"this is not a database, whatever its name says" * 100)
    east.start(wait=False)
    expect("exit code", east.daemon.ended(), 1)
    if not east.daemon.logged("start.failed", "store.sqlite"):
        raise Failed("no line names the store")


@scenario
def too_few_open_files_are_told(lab):
    """P7 P10: sessions that the limit of open files has no room for end the start with a line that says how many are needed, how many are
    allowed and which limit it is; `config check` warns of it."""
    east, _, _ = lab.east_west(through_link=False)
    east.extra["session"] = {"max": 5000}
    root = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    east.prefix = [*root, "prlimit", "--nofile=600:700"]
    east.start(wait=False)
    expect("exit code", east.daemon.ended(), 1)
    said = "session.max 5000 needs 10[0-9]+ open files, 700 are allowed .ulimit -Hn, LimitNOFILE"
    if not any(re.search(said, line) for line in east.daemon.logged("start.failed")):
        raise Failed("no line says which limit to raise, and to what")
    check = [*east.prefix, TOMBOLO, "config", "check", east.dir / "tombolod.yaml"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    expect("the file itself is good", done.returncode, 0)
    expect(f"config check warns ({done.stderr})", bool(re.search(said, done.stderr)), True)


@scenario
def a_second_daemon_on_one_arena(lab):
    """P3: the arena is locked: the second daemon says so and ends; the first goes on."""
    east, west, _ = lab.east_west(through_link=False)
    east.start()
    second = lab.site("second")
    second.arena_path = east.arena_path
    second.start(wait=False)
    expect("exit code", second.daemon.ended(), 1)
    if not second.daemon.logged("start.failed", str(east.arena_path)):
        raise Failed("no line names the arena")
    expect("first", east.control("status")["ok"], True)


@scenario
def where_nobody_can_listen_is_told(lab):
    """P10: a socket or port that is taken, not here or not allowed ends the start with 1, and one line has the key, the address and what to do."""
    east, _, _ = lab.east_west(arena_mib=16, through_link=False)
    with socket.create_server((lab.address, 0)) as taken, socket.socket(socket.AF_UNIX) as beside:
        beside.bind(str(lab.dir / "beside.sock"))
        beside.listen()
        port = f"{lab.address}:{taken.getsockname()[1]}"
        another, missing, nowhere = "another process listens there", "its folder is not there", "no device of this machine has that address"
        for section, key, address, why in (
                ("control", "socket", lab.dir / "beside.sock", another), ("control", "socket", lab.dir / "none/c.sock", missing),
                ("session", "socket", lab.dir / "beside.sock", another), ("session", "socket", lab.dir / "none/s.sock", missing),
                ("session", "listen", port, another), ("session", "listen", "192.0.2.1:7401", nowhere),
                ("link", "listen", port, another), ("link", "listen", "192.0.2.1:7400", nowhere),
                ("fabric", "listen", port, another), ("fabric", "listen", "192.0.2.1:7402", nowhere)):
            east.extra = {section: {key: address}}
            east.start(wait=False)
            expect(f"exit code with {section}.{key}: {address}", east.daemon.ended(), 1)
            if not east.daemon.logged("error ", f"{section}.{key}", str(address), why):
                raise Failed(f"no line says that {section}.{key} is to be mended, as {why}:\n{east.daemon.log_path.read_text()}")
    east.extra = {}
    east.start()


@scenario
def a_start_without_what_it_needs_ends_or_serves(lab):
    """P10: a call that fails at start, whichever it is, ends it with 1 and a line that says so, or it serves and drains."""
    east, _, _ = lab.east_west(arena_mib=16, through_link=False)
    east.extra["session"] = {"listen": f"{lab.address}:{east.worker_port}"}
    east.config_text()  # makes the certificates
    ended, served = 0, 0
    faults = [(point, n) for point, last in (("open", 8), ("mmap", 2), ("ftruncate", 1), ("fallocate", 1), ("pread", 2), ("pwrite", 2),
                                             ("socket", 6), ("thread", 2), ("library", 1)) for n in range(1, last + 1)]
    for point, n in faults + [("malloc", n) for n in range(1, 140, 9)]:
        east.start(wait=False, env={"TB_FAULT": f"{point}:{n}"})

        def up_or_over():
            if not east.daemon.alive():
                return "over"
            try:
                return east.control("status")["ok"] and "up"
            except (OSError, ValueError):
                return None
        what = wait_for(f"a start without {point} {n} ends or serves", up_or_over)
        if what == "up":
            served += 1
            expect(f"exit code after a start without {point} {n}", east.daemon.terminate(), 0)
            continue
        ended += 1
        expect(f"exit code of a start without {point} {n}", east.daemon.popen.returncode, 1)
        lines = east.daemon.logged("error ") + east.daemon.logged("tombolod.yaml:")
        if not lines:
            raise Failed(f"a start without {point} {n} ended without a line that says why")
    if ended < 10 or served < 3:
        raise Failed(f"{ended} starts ended and {served} served: the faults did not hit")


@scenario
def sessions_are_bounded(lab):
    """P7 P10: with session.max workers the next is refused with the reason; connections that say nothing are bounded too, and
    those who are in go on."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["session"] = {"max": 16, "lease_ms": 60000}
    east.start()
    workers = [Worker(lab, f"w{i}", east) for i in range(16)]
    Worker(lab, "late").refused("site_nomem", "open", gateway=f"unix:{east.session_socket}", name="late", host="h")
    silent = []

    def knock(times):
        for _ in range(times):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(east.session_socket))
            silent.append(s)
    knock(100)
    wait_for("connections are refused", lambda: east.counters()["sessions_refused"] >= 20)
    silent.pop(0).close()
    wait_for("there is a place", lambda: east.control("status")["session_count"] < 80)
    refused_then = east.counters()["sessions_refused"]
    knock(5)
    wait_for("it is taken, and others are refused again", lambda: east.counters()["sessions_refused"] > refused_then)
    expect("told", len(east.daemon.logged("session.refused", "too_many")), 1)
    if not 16 <= east.control("status")["session_count"] <= 80:
        raise Failed("connections are not bounded")
    workers[0].ok("run", model="policy", key="k")
    for s in silent:
        s.close()
    wait_for("they are gone", lambda: east.control("status")["session_count"] <= 17)
    workers.pop().kill()
    wait_for("one is gone", lambda: len(east.control("status")["sessions"]) == 15)
    Worker(lab, "next", east)


@scenario
def clients_that_speak_garbage(lab):
    """P7 P10: garbage on every port and socket; the daemon lives, counts and serves."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["session"] = {"listen": f"{lab.address}:{east.worker_port}"}
    up(east, west)
    noise = os.urandom(65536)
    for port in (east.port, east.worker_port):
        for data in (noise, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + noise, b""):
            with socket.create_connection((lab.address, port)) as s:
                try:
                    s.sendall(data)
                except OSError:
                    pass
    for path in (east.session_socket, east.control_socket):
        for data in (noise, b"\xff\xff\xff\x7f\x01\x00\x00\x00" + noise[:100], b"{\"schema\": 1}\n", b"[1,2,3]\n"):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(path))
                try:
                    s.sendall(data)
                except OSError:
                    pass
    wait_for("garbage is counted", lambda: east.counters()["sessions_garbled"] > 0)
    path = lab.weights(1)[0]
    west.wait_holds(Trainer(lab, east, path).publish(1))


@scenario
def sigterm_drains_and_ends_with_0(lab):
    """P9: SIGTERM ends a gateway with 0, and what it held is there when it starts again."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    expect("exit code", west.daemon.terminate(), 0)
    west.start()
    expect("held after the restart", west.holds(uid), True)


@scenario
def sigterm_lets_readers_finish_and_waits_for_no_other(lab):
    """P6 P9: a reader in flight at SIGTERM gets its version whole; one that stands still costs drain_ms and no more."""
    east, _, _ = lab.east_west(through_link=False)
    east.root["drain_ms"] = 20000
    east.start()
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    for stops in (False, True):
        pace = path.stat().st_size // (20 if stops else 3)  # 3 s of it; for who stands still nobody waits
        reader = Rollout(lab, east, f"reader{stops:d}", path, host="far-host", pace=pace)
        reader.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
        wait_for("it reads", lambda: any(w["held_bytes"] > 0 for w in east.version(uid)["workers"]))
        if stops:
            reader.worker.stop()
        expect("exit code", east.daemon.terminate(), 0)
        if not stops:
            expect("the stage", reader.worker.receive()["status"], "ok")
        reader.worker.kill()
        cut = f"readers_cut={stops:d}"
        if not east.daemon.logged("drain.begin", "readers=1") or not east.daemon.logged("drain.end", cut):
            raise Failed(f"no line says that one reader was there at SIGTERM, or {cut}")
        east.root["drain_ms"] = 2000
        east.start()


if __name__ == "__main__":
    sys.exit(main())
