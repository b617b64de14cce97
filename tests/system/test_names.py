"""Peers by name: services, several addresses, addresses that change (P6, P7, P10).

Covers: base/dial_race.c base/net/resolve.c base/net/srv.c base/net/endpoint.c
"""

import contextlib
import os
import socket
import sys

from harness import Dns, Failed, Skipped, Trainer, Worker, main, scenario, up, wait_for

SERVICE = "_tombolo._tcp.east.test"


def by_service(lab, rows, ttl_s=60):
    """East, and west that finds it by the service; rows are (priority, port, host) of it, all
    hosts at the lab's address."""
    east, west, _ = lab.east_west(through_link=False)
    names = {host: [lab.address] for _, _, host in rows(east)}
    names["relay.east.test"] = ["127.0.0.1"]
    dns = Dns(names, {SERVICE: [(priority, 0, port, host) for priority, port, host in rows(east)]}, ttl_s)
    west.extra["dns"] = {"servers": f"127.0.0.1:{dns.port}"}
    west.peers["east"] = SERVICE
    return east, west, dns


@contextlib.contextmanager
def silent_port(address, port=0):
    """A port whose queue of connections is full: a dialler hears nothing."""
    with socket.create_server((address, port), backlog=0) as server:
        fillers = []
        for _ in range(4):
            s = socket.socket()
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                s.connect(server.getsockname())
            fillers.append(s)
        yield server.getsockname()[1]
        for s in fillers:
            s.close()


@scenario
def a_service_says_hosts_and_ports(lab):
    """SRV records by priority: at the first one's port nobody listens, at the second east does."""
    dead = lab.free_port()
    east, west, dns = by_service(lab, lambda e: [(20, e.port, "b.east.test"), (10, dead, "a.east.test")])
    with contextlib.closing(dns):
        up(east, west)
        west.wait_holds(Trainer(lab, east, lab.weights(1)[0]).publish(1))
        if not west.daemon.logged("link.dial_failed"):
            raise Failed("the target of the lower priority was not tried first")


@scenario
def a_silent_address_is_outrun(lab):
    """P6: the first target swallows what is sent to it. The next one is dialled beside it, and
    no dial has failed."""
    with silent_port(lab.address) as silent:
        east, west, dns = by_service(lab, lambda e: [(10, silent, "a.east.test"), (20, e.port, "b.east.test")])
        with contextlib.closing(dns):
            up(east, west)
            west.wait_holds(Trainer(lab, east, lab.weights(1)[0]).publish(1))
            if west.daemon.logged("link.dial_failed"):
                raise Failed("the second target was dialled after the first had timed out")


@scenario
def a_worker_tries_the_next_address(lab):
    """P6: a gateway's name has five addresses, four of which swallow what is sent there: a
    worker does not wait for them as for an only one, 10 s for each."""
    if os.geteuid() != 0:
        raise Skipped("only root mounts names of hosts")
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["session"] = {"listen": f"{lab.address}:{east.worker_port}"}
    lab.pki_dir("west")
    east.peers["west"] = None  # so that it has certificates
    pki, hosts = lab.pki_dir("east"), lab.dir / "hosts"
    lab.tombolo("pki", "issue", "--dir", pki, "--out", "w", "tombolo://east/worker/w")
    silent = [f"127.{n}." + lab.address.split(".", 2)[2] for n in range(200, 204)]  # labs begin with 127.64 to 127.127
    hosts.write_text("".join(f"{a} gw.east.test\n" for a in (*silent, lab.address)))
    east.worker_prefix = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts]
    with contextlib.ExitStack() as stack:
        for address in silent:
            stack.enter_context(silent_port(address, east.worker_port))
        east.start()
        worker = Worker(lab, "w", east, gateway=f"gw.east.test:{east.worker_port}", ca=str(pki / "ca.crt"), cert=str(pki / "w.crt"),
                        key=str(pki / "w.key"), timeout_ms=39500)
        worker.ok("status", what="session")


@scenario
def a_peer_that_moves_is_found_by_its_name(lab):
    """P5 P6: in mid-version east's address falls silent, and its name says another one: west
    goes on there with what it holds."""
    east, west, dns = by_service(lab, lambda e: [(10, e.port, "a.east.test")], ttl_s=600)
    with contextlib.closing(dns):
        east.start()
        old, new = lab.link(east), lab.link(east)
        dns.services[SERVICE] = [(10, 0, old.port, "relay.east.test")]
        west.start()
        west.wait_link("east")
        old.bytes_per_s = 2 << 20
        uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
        v = west.wait_held_some(uid, 0.2)
        dns.services[SERVICE] = [(10, 0, new.port, "relay.east.test")]
        old.stalled = True
        wait_for("bytes by the new address", lambda: new.back_bytes > 0)
        west.wait_holds(uid)
        if new.back_bytes > v["bytes"] - v["held_bytes"] + (4 << 20):
            raise Failed(f"{new.back_bytes} bytes came again although west held {v['held_bytes']} of {v['bytes']}")


@scenario
def a_session_that_works_follows_its_name(lab):
    """P5 P6: east's name says another address while the old one still works: the link goes there
    by itself, is never down, and stays where it is when the name says an address at which nobody
    answers. (An answer is good for 5 s at least, and two are heard.)"""
    east, west, dns = by_service(lab, lambda e: [(10, e.port, "a.east.test")], ttl_s=1)
    with contextlib.closing(dns):
        east.start()
        old, new = lab.link(east), lab.link(east)
        dns.services[SERVICE] = [(10, 0, old.port, "relay.east.test")]
        west.start()
        west.wait_link("east")
        old.bytes_per_s = 192 << 10  # of each connection
        uid = Trainer(lab, east, lab.weights(1)[0]).publish(1)
        west.wait_held_some(uid)
        dns.services[SERVICE] = [(10, 0, new.port, "relay.east.test")]
        wait_for("bytes by the new address", lambda: new.back_bytes > 0)
        west.wait_holds(uid)
        v = west.version(uid)
        if old.back_bytes + new.back_bytes > v["bytes"] + (8 << 20):
            raise Failed(f"{old.back_bytes} bytes came by the old address, {new.back_bytes} by the new, of {v['bytes']}")
        by_old = old.back_bytes
        west.wait_holds(Trainer(lab, east, lab.weights(1)[0], key="run-b").publish(2))
        if old.back_bytes > by_old + (64 << 10):
            raise Failed(f"{old.back_bytes - by_old} bytes came by the address that was left")
        asked = dns.asked
        dns.services[SERVICE] = [(10, 0, lab.free_port(), "relay.east.test")]
        wait_for("four answers", lambda: dns.asked >= asked + 8)  # the service, and its host
        if west.daemon.logged("link.down"):
            raise Failed("the link was down")
        west.wait_link("east")


if __name__ == "__main__":
    sys.exit(main())
