"""A gateway starts with all that it needs or says what lacks, bounds its clients, and ends on
SIGTERM (P7, P10).

Covers: gateway/daemon/main.c gateway/daemon/shutdown.c gateway/config/descriptors.c
Covers: gateway/config/start_checks.c gateway/daemon/sessions/sessions.c
"""

import os
import re
import socket
import subprocess
import sys

from harness import (PATIENCE_MS, TOMBOLO, Failed, Rollout, Trainer, Worker, expect, main, scenario,
                     up, wait_for)


@scenario
def too_few_open_files_are_told(lab):
    """P7 P10: sessions that the limit of open files has no room for end the start with a line
    that says how many are needed, how many are allowed and which limit it is; `config check`
    warns of it."""
    east, _, _ = lab.east_west(through_link=False)
    east.extra["session"] = {"max": 5000}
    root = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    east.prefix = [*root, "prlimit", "--nofile=600:700"]
    east.start(wait=False)
    expect("exit code", east.daemon.ended(), 1)
    said = "session.max 5000 needs 1[0-9]{4} open files, 700 are allowed .ulimit -Hn, LimitNOFILE"
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
    """P10: a socket or port that is taken, not here or not allowed ends the start with 1, and
    one line has the key, the address and what to do."""
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
    """P10: a call that fails at start, whichever it is, ends it with 1 and a line that says so,
    or it serves and drains."""
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
    """P7 P10: with session.max workers the next is refused with the reason; connections of one user
    that say nothing are bounded too, and those who are in go on."""
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
    wait_for("the log says whose they are", lambda: east.daemon.logged("share.spent", "table=connections"))
    expect("told", len(east.daemon.logged("share.spent", "table=connections")), 1)
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
    """P6 P9: a reader in flight at SIGTERM gets its version whole; one that stands still costs
    drain_ms and no more."""
    east, _, _ = lab.east_west(through_link=False)
    east.root["drain_ms"] = 20000
    east.start()
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    for stops in (False, True):
        pace = path.stat().st_size // (20 if stops else 3)  # 3 s of it; nobody waits for a reader that stands still
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
