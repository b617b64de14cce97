#!/usr/bin/env python3
"""From nothing to a link that is up: tombolo init, and the commands of docs/two-sites.md and
docs/certificates.md.

Covers: gateway/cli/init_command.c gateway/cli/demo_command.c
Covers: gateway/cli/pki_request_commands.c gateway/cli/pki_authority_commands.c
Covers: gateway/cli/pki_show_command.c
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

from harness import BUILD, PATIENCE, SOURCE, TOMBOLO, TOMBOLOD, Failed, Process, Skipped, Veth, expect, main, scenario, wait_for

PAGE = SOURCE / "docs/two-sites.md"


CERTIFICATES = SOURCE / "docs/certificates.md"


def tombolo(*argv, code=0):
    done = subprocess.run([str(a) for a in (TOMBOLO, *argv)], capture_output=True, text=True, check=False)
    expect(f"tombolo {argv[0]}: {done.stdout}{done.stderr}", done.returncode, code)
    return done.stdout + done.stderr


def is_up(socket):
    done = subprocess.run([TOMBOLO, "status", "--json", "--control", socket], capture_output=True, text=True, check=False)
    links = json.loads(done.stdout).get("links", []) if done.returncode == 0 else []
    return [link["state"] for link in links] == ["up"]


@scenario
def init_writes_what_two_gateways_need(lab):
    """P8: two sites of their own authorities link, and the model crosses. Nothing that is there is changed."""
    port = lab.free_port()
    places = {site: lab.arena_dir / site for site in ("east", "west")}
    common = ("--model", "policy", "--home", "east", "--arena", "16MiB")
    said = tombolo("init", "east", "--peer", "west", "--listen", f"127.0.0.1:{port}", *common, "--dir", places["east"])
    expect("the other machine's command", "tombolo init west --peer east=ADDRESS-OF-THIS-MACHINE --model policy --home east" in said, True)
    tombolo("init", "west", "--peer", f"east=127.0.0.1:{port}", *common, "--dir", places["west"])
    for site, other in (("east", "west"), ("west", "east")):
        shutil.copy(places[site] / site / "ca.crt", places[other] / other / f"{site}-ca.crt")
    sockets = {}
    for site, place in places.items():
        tombolo("config", "check", place / f"{site}.yaml")
        daemon = Process(f"tombolod-{site}", [TOMBOLOD, "--config", place / f"{site}.yaml"], lab.dir / f"{site}.log")
        lab.processes.append(daemon)
        sockets[site] = place / site / "control.sock"
    for site in places:
        wait_for(f"the link of {site} is up", lambda site=site: is_up(sockets[site]))
    (lab.dir / "weights").write_bytes(os.urandom(100000))
    gateway = {site: f"unix:{places[site] / site / 'session.sock'}" for site in places}
    tombolo("publish", "policy", "--version", 1, "--gateway", gateway["east"], lab.dir / "weights")
    tombolo("subscribe", "policy", "--into", lab.dir / "into", "--gateway", gateway["west"], "--timeout", PATIENCE)
    expect("bytes", next((lab.dir / "into").glob("*/weights")).read_bytes(), (lab.dir / "weights").read_bytes())
    firewall = places["east"] / "east/firewall.nft"
    expect("the port is in it", f"dport {port} " in firewall.read_text(), True)
    expect("a side that dials opens none", (places["west"] / "west/firewall.nft").exists(), False)
    key = (places["east"] / "east/ca.key").read_bytes()
    again = tombolo("init", "east", "--peer", "north", "--dir", places["east"], code=1)
    expect("what is there stays", ("left alone; another site is added by hand" in again, (places["east"] / "east/ca.key").read_bytes()), (True, key))


@scenario
def a_firewall_leaves_other_rules_alone(lab):
    """Two sites of one machine and the sample for a machine: each stays closed, and none is there twice."""
    own_network = ["unshare", "--net", "sh", "-euc"]
    if not shutil.which("nft") or subprocess.run([*own_network, "nft list ruleset"], capture_output=True, check=False).returncode != 0:
        raise Skipped("no nft here, or no network of its own (deploy/setup --tests installs it)")
    files = [SOURCE / "deploy/network/gateway.nft"]
    for site, port in (("east", 7400), ("eu-west.1_a", 7500)):
        tombolo("init", site, "--peer", "north", "--listen", f"0.0.0.0:{port}", "--arena", "16MiB", "--dir", lab.dir)
        files.append(lab.dir / site / "firewall.nft")
    load = "; ".join(f"nft -f {file}" for file in files)
    rules = subprocess.run([*own_network, f"{load}; {load}; nft list ruleset"], capture_output=True, text=True, check=True).stdout
    expect("tables", re.findall(r"^table inet (\S+) ", rules, re.M), ["tombolo", "tombolo_east", "tombolo_eu-west.1_a"])
    expect("ports that are closed", re.findall(r"dport (\d+) drop", rules), ["7400", "7500"])
    expect("drops, and accepts of the files of sites", (rules.count("drop\n"), len(re.findall(r"saddr (?:0.0.0.0|::)/0 accept\n", rules))), (3, 4))


@scenario
def init_refuses_what_no_gateway_takes(lab):
    """P10: a sentence that names the mistake, and nothing is written."""
    place = lab.dir / "none"
    for argv, code, word in ((("we/st", "--peer", "east"), 1, "a name is"), (("west",), 2, "--peer is needed"),
                             (("west", "--peer", "east=:x"), 1, "peers.east.address"), (("west", "--peer", "west"), 1, "west"),
                             (("west", "--peer", "east", "--home", "north"), 1, "--home"), (("west", "--peer", "east="), 1, "east"),
                             (("west", "--peer", "east", "--listen", "7400"), 1, "link.listen"),
                             (("west", "--peer", "east", "--arena", "much"), 1, "arena.bytes")):
        said = tombolo("init", *argv, "--dir", place, code=code)
        expect(f"{argv}: {said}", word in said, True)
        expect("files", place.exists(), False)


@scenario
def init_writes_a_drop_in_for_rdma(lab):
    """The unit of the package allows no RDMA. Where the machine has a device, init writes what does, and
    says where it goes; elsewhere it writes none."""
    if os.getuid() != 0:
        raise Skipped("only root can play a machine with RDMA")
    wanted = (SOURCE / "deploy/systemd/rdma.conf").read_text()
    for site, device in (("east", "mlx5_0"), ("west", "")):
        etc = lab.dir / site
        etc.mkdir()
        script = (f"mount -t tmpfs none /sys/class; mkdir -p /sys/class/infiniband/{device}; mount --bind {etc} /etc; "
                  f"exec {TOMBOLO} init {site} --peer north --arena 16MiB")
        done = subprocess.run(["unshare", "--mount", "sh", "-euc", script], capture_output=True, text=True, check=False)
        expect(f"tombolo init: {done.stdout}{done.stderr}", done.returncode, 0)
        written = etc / "tombolo" / site / "unit.conf"
        command = f"install -D -m 644 /etc/tombolo/{site}/unit.conf /etc/systemd/system/tombolod@{site}.service.d/rdma.conf"
        expect(f"{site} says where it goes", command in done.stdout, bool(device))
        expect(f"{site} has one", written.exists(), bool(device))
        if device:
            expect("settings", *([line for line in text.splitlines() if not line.startswith("#")] for text in (written.read_text(), wanted)))


@scenario
def a_demo_shows_two_sites(lab):
    """P2: from an install alone: versions cross, the example is told, and nothing stays."""
    subprocess.run(["cmake", "--install", BUILD, "--component", "programs", "--prefix", lab.dir / "prefix"], check=True, capture_output=True)
    memory = lab.dir / "m"  # a socket's path is below it
    memory.mkdir()
    done = subprocess.run([lab.dir / "prefix/bin/tombolo", "demo", "--versions", "2", "--every", "0", "--bytes", "300K"],
                          env={**os.environ, "TB_TEST_SHM": str(memory)}, capture_output=True, text=True, check=False)
    expect(f"tombolo demo: {done.stdout}{done.stderr}", done.returncode, 0)
    for words in ("stop a gateway now, and watch", "version 2 is at west, every byte equal"):
        expect(words, words in done.stdout, True)
    expect("its folder", list(memory.iterdir()), [])
    done = subprocess.run([TOMBOLO, "demo"], capture_output=True, text=True, check=False)
    expect("without a package", (done.returncode, "it comes with the package" in done.stderr), (1, True))


class Machine:
    """A site as the page has it: a network of its own, and its own /etc/tombolo, /run, /var/lib and /dev/shm."""

    def __init__(self, lab, net, site):
        self.lab, self.site = lab, site
        self.root = lab.dir / site
        for folder in ("etc/tombolo", "etc/ssl", "run/tombolo", "var/lib/tombolo", "tmp"):
            (self.root / folder).mkdir(parents=True)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ssl/openssl.cnf"):
            if os.path.exists(f"/etc/{name}"):
                shutil.copy(f"/etc/{name}", self.root / "etc" / name)
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{net.address('east')} gw.east.example\n")
        (self.root / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
        memory = lab.arena_dir / site
        memory.mkdir()
        binds = "".join(f"mount --bind {self.root}/{place} /{place}; " for place in ("etc", "run", "var/lib"))
        self.enter = net.enter(site, ["unshare", "--mount", "sh", "-euc", f"{binds} mount --bind {memory} /dev/shm; "
                                      f"PATH={TOMBOLO.parent}:$PATH; exec \"$@\"", "-"])

    def inside(self, path):
        return self.root / path.lstrip("/")

    def run(self, line):
        """One line of the page. Units and other machines are played by the test."""
        unit, copy = re.fullmatch(r"systemctl enable --now tombolod@(\w+)", line), re.fullmatch(r"scp (\S+) (\w+):(\S+)", line)
        if line.startswith("systemctl reload "):
            self.reload()
            return
        if unit:
            argv = [*self.enter, TOMBOLOD, "--config", f"/etc/tombolo/{unit[1]}.yaml"]
            self.daemon = Process(f"tombolod-{unit[1]}", argv, self.lab.dir / f"{unit[1]}.log")
            self.lab.processes.append(self.daemon)
            return
        if copy:
            shutil.copy(self.inside(copy[1]), self.lab.dir / copy[2] / copy[3].lstrip("/"))
            return
        line = line.replace("/tmp/", f"{self.root}/tmp/")
        done = subprocess.run([*self.enter, "sh", "-euc", line], capture_output=True, text=True, check=False)
        expect(f"on {self.site}: {line}: {done.stdout}{done.stderr}", done.returncode, 0)

    def reload(self):
        """SIGHUP, until the files that are there now are in use; at west, which dials, on its link too."""
        def read():
            return len(self.daemon.logged("tls.loaded") + self.daemon.logged("tls.same")), len(self.daemon.logged("link.renewed"))
        before = read()
        self.daemon.signal(signal.SIGHUP)
        wait_for(f"{self.site} reads its files", lambda: read()[0] > before[0] and (self.site == "east" or read()[1] > before[1]))
        if self.daemon.logged("tls.refused"):
            raise Failed(f"{self.site} refuses its files: {self.daemon.logged('tls.refused')}")

    def is_up(self):
        done = subprocess.run([*self.enter, TOMBOLO, "status", "--json"], capture_output=True, text=True, check=False)
        return done.returncode == 0 and [link["state"] for link in json.loads(done.stdout).get("links", [])] == ["up"]


def blocks_of(page, least, way):
    """(site, commands) of a page. Where it has two ways, as in ```sh west requested, this one."""
    blocks = re.findall(r"^```sh (east|west)(?: (made|requested|anybody))?\n(.*?)^```$", page.read_text(), re.M | re.S)
    if len(blocks) < least:
        raise Failed(f"{page} has {len(blocks)} blocks of commands")
    return [(site, text) for site, of, text in blocks if of in ("", "anybody", way)]


def follow(machines, blocks):
    for site, text in blocks:
        for line in text.splitlines():
            if line == "tombolo status":
                for machine in machines.values():
                    wait_for(f"the link of {machine.site} is up", machine.is_up)
            # The memory of a namespace is this machine's: less than a quarter of it does.
            machines[site].run(re.sub("^tombolo init.*", r"\g<0> --arena 16MiB", line))


@scenario
def the_guide_for_certificates_works(lab):
    """P8 P9 P10: docs/certificates.md on the sites of docs/two-sites.md, of which one has an authority
    elsewhere. Certificates are renewed and a root is replaced, and no link goes down."""
    with Veth() as net:
        machines = {site: Machine(lab, net, site) for site in ("east", "west")}
        follow(machines, blocks_of(PAGE, 8, "requested"))
        follow(machines, blocks_of(CERTIFICATES, 8, "requested"))
        for machine in machines.values():
            wait_for(f"the link of {machine.site} is up", machine.is_up)
            if machine.daemon.logged("link.down"):
                raise Failed(f"a link went down at {machine.site}")


@scenario
def the_guide_for_two_sites_works(lab):
    """P10: docs/two-sites.md, command by command, on two machines that are namespaces."""
    with Veth() as net:
        machines = {site: Machine(lab, net, site) for site in ("east", "west")}
        follow(machines, blocks_of(PAGE, 8, "made"))
        published = machines["east"].root / "tmp/checkpoint-1/weights.bin"
        came, = (machines["west"].root / "tmp/policy").glob("*/weights.bin")
        expect("bytes", came.read_bytes(), published.read_bytes())


@scenario
def the_sizes_of_the_guide_are_those_of_the_plan(lab):
    """Each row of the table: memory, bandwidth and cores, by the formula of sim/fleet/plan."""
    sys.path.insert(0, str(SOURCE / "sim/fleet"))
    import sizing
    unit = {"GB": 1e9, "TB": 1e12, "Mbit/s": 1e6, "Gbit/s": 1e9, "": 1}
    found = re.findall(r"^\| ([\d.]+) ([GT]B) \| ([\d.]+) ([GT]B) \| ([\d.]+) ([MG]bit/s) \| ([\d.]+)() \|$", PAGE.read_text(), re.M)
    expect("rows", len(found), 3)
    for row in found:
        version, *told = (float(number) * unit[of] for number, of in zip(row[::2], row[1::2]))
        made = sizing.arena_bytes(version, 2), sizing.link_bits_per_s(version, 0.03, 60), sizing.gateway_cores(version, 0.03, 60)
        for what, said, is_ in zip(("memory", "link", "cores"), told, made):
            expect(f"{what} of {row[0]} {row[1]}: {said:g}, not {is_:g}", abs(said - is_) <= max(0.006 * is_, 0.05), True)


if __name__ == "__main__":
    sys.exit(main())
