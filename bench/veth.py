"""Two sites joined by a wire: network namespaces a and b and a veth pair, as root. Ends is what a wire of sim/wan has too.

Everything ends with the context. After a SIGKILL of the bench its processes die with it (PR_SET_PDEATHSIG), and cleanup.py
takes down the namespaces."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

ADDRESS = {"a": "10.233.77.1", "b": "10.233.77.2"}
HOST = {"a": "gwa.test", "b": "gwb.test"}
PREFIX = "tb-bench"


def ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, timeout=20)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def take_down(name):
    for pid in ip("netns", "pids", name, check=False).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    ip("netns", "del", name, check=False)
    shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)


def take_down_orphans():
    for name in re.findall(rf"^{PREFIX}-\d+-[ab]\b", ip("netns", "list", check=False), re.M):
        if not pathlib.Path(f"/proc/{name.split('-')[2]}").exists():
            take_down(name)


class Ends:
    """Namespaces a and b, and what runs in them. A wire says name, address and device of each end, and how its carrier goes."""

    def argv(self, end, *words):
        return ["ip", "netns", "exec", self.name[end], *map(str, words)]

    def start(self, end, *words, env=None, log=subprocess.DEVNULL):
        return subprocess.Popen(self.argv(end, *words), env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, preexec_fn=die_with_parent, start_new_session=True)

    def name_hosts(self):
        """Each end knows the names of both: grid programs ask for them."""
        for end in "ab":
            folder = pathlib.Path(f"/etc/netns/{self.name[end]}")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{self.address[e]} {HOST[e]}\n" for e in "ab"))

    def forget_hosts(self):
        for end in "ab":
            shutil.rmtree(f"/etc/netns/{self.name[end]}", ignore_errors=True)

    def received_bytes(self):
        """By b, headers and all."""
        return json.loads(ip("-n", self.name["b"], "-s", "-j", "link", "show", self.device["b"]))[0]["stats64"]["rx"]["bytes"]

    @contextlib.contextmanager
    def cut_once(self, after_bytes, for_s):
        """A watcher's function: call it while a transfer runs; when so many bytes came the carrier goes, for so long."""
        state = {"start": self.received_bytes(), "until": None, "done": False}

        def look():
            now = time.monotonic()
            if state["done"]:
                return
            if state["until"] is None:
                if self.received_bytes() - state["start"] >= after_bytes:
                    self.carrier_gone()
                    state["until"] = now + for_s
            elif now >= state["until"]:
                self.carrier_back()
                state["done"] = True
        try:
            yield look
        finally:
            if state["until"] is not None and not state["done"]:
                self.carrier_back()


class Wire(Ends):
    """A veth pair."""

    address = ADDRESS
    device = {"a": "va", "b": "vb"}

    def __init__(self):
        self.name = {end: f"{PREFIX}-{os.getpid()}-{end}" for end in "ab"}

    def __enter__(self):
        take_down_orphans()
        try:
            self.put_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def put_up(self):
        self.name_hosts()
        for end in "ab":
            ip("netns", "add", self.name[end])
        ip("link", "add", "va", "netns", self.name["a"], "type", "veth", "peer", "name", "vb", "netns", self.name["b"])
        for end in "ab":
            ip("-n", self.name[end], "addr", "add", ADDRESS[end] + "/30", "dev", f"v{end}")
            for device in ("lo", f"v{end}"):
                ip("-n", self.name[end], "link", "set", device, "up")

    def __exit__(self, *_):
        for end in "ab":
            take_down(self.name[end])

    def congestion(self, name):
        for end in "ab":
            ip("-n", self.name[end], "route", "change", "10.233.77.0/30", "dev", f"v{end}", "proto", "kernel", "scope", "link",
               "src", ADDRESS[end], "congctl", name)

    def shape(self, mbit):
        """Bytes that a sends are held to a rate; None: no limit."""
        dev = ["dev", "va", "root"]
        subprocess.run(["tc", "-n", self.name["a"], "qdisc", "del", *dev], capture_output=True, check=False)
        if mbit is not None:
            subprocess.run(["tc", "-n", self.name["a"], "qdisc", "add", *dev, "tbf", "rate", f"{mbit}mbit", "burst", "256k",
                            "latency", "50ms"], check=True, capture_output=True)

    def verdict(self):
        """Why what was measured last does not count; None: it does."""
        return None

    def carrier_gone(self):
        ip("-n", self.name["a"], "link", "set", "va", "down")

    def carrier_back(self):
        ip("-n", self.name["a"], "link", "set", "va", "up")


def tree_cpu_s(pid):
    """Core-seconds of a process, its children that live and those it has waited for."""
    ticks, todo = 0, [pid]
    while todo:
        one = todo.pop()
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{one}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))
            for thread in os.listdir(f"/proc/{one}/task"):
                todo += map(int, pathlib.Path(f"/proc/{one}/task/{thread}/children").read_text(encoding="ascii").split())
    return ticks / os.sysconf("SC_CLK_TCK")
