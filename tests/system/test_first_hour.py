#!/usr/bin/env python3
"""The first hour of a platform engineer, from the packages alone: docs/install.md and
docs/two-sites.md to the letter, on two machines that are fresh Debians in networks of their own.
The answer of a command and its time stand in the output.

Covers: gateway/cli/init_command.c gateway/cli/demo_command.c gateway/daemon/service_manager.c
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from harness import SOURCE, Failed, Process, Skipped, Veth, expect, main, scenario, wait_for

PAGES = SOURCE / "docs/install.md", SOURCE / "docs/two-sites.md"
DEMO_S = 10  # until both sites of `tombolo demo` are up


def run(*argv, **kwargs):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, **kwargs)
    expect(f"{argv[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}", done.returncode, 0)
    return done.stdout


def packages(lab):
    """TB_PACKAGES: some that are there."""
    if "TB_PACKAGES" in os.environ:
        return pathlib.Path(os.environ["TB_PACKAGES"])
    run(SOURCE / "deploy/packages", "--build", lab.dir / "build", lab.dir / "packages", timeout=3000)
    return lab.dir / "packages"


def debian(lab):
    """A Debian 12 with systemd, as a tar. TB_DEBIAN: where it is kept from one run to the next."""
    kept = pathlib.Path(os.environ.get("TB_DEBIAN", lab.dir / "debian.tar"))
    if not kept.exists():
        made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd", "bookworm", kept],
                              capture_output=True, text=True, check=False)
        if made.returncode != 0:
            kept.unlink(missing_ok=True)
            raise Skipped(f"mmdebstrap made no Debian: {made.stderr[-300:]}")
    return kept


class Machine:
    """A fresh Debian. systemd is no process of it: the test does what the unit says."""

    def __init__(self, lab, net, name, base, held):
        self.lab, self.net, self.name, self.root = lab, net, name, lab.dir / name
        self.root.mkdir()
        run("tar", "-xf", base, "-C", self.root)
        shutil.copytree(held, self.root / "root/packages")
        with (self.root / "etc/hosts").open("a") as hosts:
            hosts.write(f"127.0.0.1 localhost\n{net.address('east')} gw.east.example\n")
        self.memory = lab.arena_dir / name
        self.memory.mkdir()
        self.memory.chmod(0o1777)

    def enter(self, user, argv, outside):
        mounts = f"mount -t proc proc {self.root}/proc; mount --bind {self.memory} {self.root}/dev/shm"
        into = ["unshare", "--mount", "sh", "-euc", f"{mounts}; exec \"$@\"", "-", "chroot", self.root]
        group = {"nobody": "nogroup"}.get(user, user)
        as_user = ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", *argv] if user != "root" else argv
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        every = [*into, *clean, *as_user]
        return every if outside else self.net.enter(self.name, every)

    def shell(self, line, user="root", outside=False):
        """Its output, out and err as a terminal mixes them."""
        began = time.monotonic()
        argv = self.enter(user, ["sh", "-euc", f"cd /root/packages 2>/dev/null || cd /tmp; {line}"], outside)
        done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(f"{time.monotonic() - began:7.2f} s  {self.name} ({user})$ {line}\n{done.stdout}", end="", flush=True)
        expect(f"on {self.name}: {line}: {done.stdout[-3000:]}", done.returncode, 0)
        return done.stdout

    def start(self, instance):
        """As systemd does it: the command and the user of the unit, until it says that it is ready."""
        unit = (self.root / "usr/lib/systemd/system/tombolod@.service").read_text()
        command, user = (re.search(rf"(?m)^{key}=(.*)$", unit)[1].replace("%i", instance) for key in ("ExecStart", "User"))
        began = time.monotonic()
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
            manager.bind(str(self.root / "run/notify"))
            (self.root / "run/notify").chmod(0o666)
            manager.settimeout(0.05)
            argv = self.enter(user, ["env", "NOTIFY_SOCKET=/run/notify", *command.split()], False)
            self.daemon = Process(f"tombolod-{instance}", argv, self.lab.dir / f"{instance}.log")
            self.lab.processes.append(self.daemon)
            wait_for(f"{instance} is ready", lambda: self.hears(manager, instance))
        print(f"{time.monotonic() - began:7.2f} s  {self.name} (root)$ systemctl enable --now tombolod@{instance}", flush=True)

    def hears(self, manager, instance):
        if not self.daemon.alive():
            raise Failed(f"tombolod@{instance} ended")
        with contextlib.suppress(TimeoutError):
            return manager.recv(4096).startswith(b"READY=1")
        return False

    def is_up(self):
        argv = [str(a) for a in self.enter("root", ["tombolo", "status", "--json"], False)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode == 0 and [link["state"] for link in json.loads(done.stdout).get("links", [])] == ["up"]


def do(machines, name, line, user):
    """A line of a page. Two kinds are played: units and other machines."""
    machine = machines[name]
    unit, copy = re.fullmatch(r"systemctl enable --now tombolod@(\w+)", line), re.fullmatch(r"scp (\S+) (\w+):(\S+)", line)
    if unit:
        machine.start(unit[1])
    elif copy:
        shutil.copy(machine.root / copy[1].lstrip("/"), machines[copy[2]].root / copy[3].lstrip("/"))
    elif line.startswith("apt install "):  # from Debian, which the two networks do not reach
        machine.shell(line.replace("apt install ", "apt-get -qq update; apt-get -qq -y --no-install-recommends install "), outside=True)
    else:
        if line == "tombolo status":
            for each in machines.values():
                wait_for(f"the link of {each.name} is up", each.is_up)
        # A quarter of this machine's memory, twice, is more than a test may take.
        machine.shell(re.sub("^tombolo init.*", r"\g<0> --arena 64MiB", line), user)


def blocks(page):
    """(where, user, lines) of each block of commands: ```sh WHERE [made|USER]. Of two ways the first."""
    for words, text in re.findall(r"^```sh ([^\n]*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        where, *rest = words.split()
        if "requested" not in rest:
            yield where, "nobody" if "anybody" in rest else "root", text.splitlines()


@scenario
def the_first_hour_from_packages(lab):
    """P2 P8 P9: install, configure, exchange, start, publish, subscribe; then Python, and the demo within ten seconds."""
    missing = [program for program in ("mmdebstrap", "unshare", "cpack", "dpkg-shlibdeps") if shutil.which(program) is None]
    if missing or os.getuid() != 0:
        raise Skipped(f"it takes root, and {' '.join(missing) or 'all of its programs are here'}")
    held, base = packages(lab), debian(lab)
    with Veth() as net:
        machines = {name: Machine(lab, net, name, base, held) for name in ("east", "west")}
        began = time.monotonic()
        for page in PAGES:
            for where, user, lines in blocks(page):
                for name in ("east", "west") if where in ("gateway", "worker", "both") else (where,):
                    for line in lines:
                        do(machines, name, line, user)
        print(f"{time.monotonic() - began:7.2f} s  all commands of {' and '.join(page.name for page in PAGES)}")
        made = machines["east"].root / "tmp/checkpoint-1/weights.bin"
        came, = (machines["west"].root / "tmp/policy").glob("*/weights.bin")
        expect("bytes", came.read_bytes() == made.read_bytes(), True)
        goes_on(machines["east"])
        shows_two_sites(machines["east"])


def goes_on(machine):
    """Changes and looks of the days behind it, by root; and what another user is told."""
    said = machine.shell("tombolo config check /etc/tombolo/east.yaml")
    expect("its own files are no fault", "0 errors" in said or "is good" in said, True)
    machine.shell("tombolo pki renew /etc/tombolo/east/gw.crt --dir /etc/tombolo/east")
    machine.daemon.signal(signal.SIGHUP)
    log = machine.lab.dir / f"{machine.name}.log"
    wait_for("the gateway takes its new certificate", lambda: "tls.loaded" in log.read_text())
    said = machine.shell("tombolo status || true", "nobody")
    expect(f"who may look: {said}", "members of the socket's group" in said, True)


def shows_two_sites(machine):
    """`tombolo demo`, as a user who is nobody in particular."""
    began, up_s = time.monotonic(), None
    argv = [str(a) for a in machine.enter("nobody", ["env", "HOME=/tmp", "tombolo", "demo", "--versions", "2", "--every", "0"], False)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        said = ""
        for line in demo.stdout:
            said += line
            if "are up" in line:
                up_s = time.monotonic() - began
    print(said, end="")
    expect(f"tombolo demo: {said}", demo.returncode, 0)
    expect(f"both sites within {DEMO_S} s, not {up_s}", up_s is not None and up_s < DEMO_S, True)
    expect("the demo leaves nothing", [path.name for path in machine.memory.iterdir() if "demo" in path.name], [])


if __name__ == "__main__":
    sys.exit(main())
