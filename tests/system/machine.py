"""Changes of a system test to the machine under a gateway: disks that are slow, small or full, a
wall clock, huge pages, a pair of network namespaces, and how busy others keep the cores."""

import contextlib
import mmap
import os
import pathlib
import re
import struct
import subprocess
import time

import leavings
from waiting import HELD_READ, HELD_SYNC, SHIFTED_CLOCK, Process, Skipped

DAY_S = 24 * 3600
OTHERS_BUSY = 0.25  # the part of this machine's cores from which on a time that was too long says nothing


def opened_to_others(*paths):
    """Other users may pass to them. Of what lies above a lab only a folder of tests/run is changed."""
    for folder in {parent for path in paths for parent in path.parents}:
        if folder.stat().st_mode & 0o001:
            continue
        if not folder.name.startswith("tb-tests-"):
            raise Skipped(f"{folder} is closed to other users")
        folder.chmod(folder.stat().st_mode | 0o011)


class SlowDisk:
    """Makes a site's gateway wait in fsync for as long as it is held."""

    def __init__(self, site):
        self.path = site.dir / "hold.sync"
        self.env = {"LD_PRELOAD": str(HELD_SYNC), "TB_HOLD_SYNC": str(self.path),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def hold(self):
        self.path.touch()

    def let_go(self):
        self.path.unlink(missing_ok=True)


class SlowReader:
    """Makes a worker that is started with its `env` stand in the middle of reading another
    process's memory while it is held."""

    def __init__(self, lab, name):
        self.path = lab.dir / f"{name}.hold"
        self.path.touch()
        self.env = {"LD_PRELOAD": str(HELD_READ), "TB_HOLD_READ": str(self.path),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def let_go(self):
        self.path.unlink(missing_ok=True)


def no_reader():
    """The environment of a worker that may read no other process's memory, as in another container."""
    return {"LD_PRELOAD": str(HELD_READ), "TB_DENY_READ": "1",
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


class WallClock:
    """The hour that a site's gateway believes it is: noon (UTC) to begin with. Its measure of time is the machine's, and so is the clock
    with which it compares the dates of certificates, unless `dates`."""

    def __init__(self, site, dates=False):
        self.path = site.dir / "clock.shift"
        self.shift_s = DAY_S // 2 - int(time.time()) % DAY_S
        self.path.write_bytes(struct.pack("=q", self.shift_s))
        site.env = {"LD_PRELOAD": str(SHIFTED_CLOCK), "TB_CLOCK_SHIFT": str(self.path), **({"TB_CLOCK_DATES": "1"} if dates else {}),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def next_day(self):
        self.forward(DAY_S)

    def forward(self, seconds):
        self.shift_s += seconds
        with open(self.path, "r+b", buffering=0) as f:  # eight bytes at once: the gateway has them mapped
            f.write(struct.pack("=q", self.shift_s))


class SmallMount:
    """A tmpfs on a folder of its own, in a mount namespace that lives as long as this: the
    holder ends when its input closes, also when the test is killed, and the kernel then takes
    the mount down."""

    def __init__(self, lab, folder, size="2m"):
        self.dir = folder
        self.dir.mkdir()
        root = os.geteuid() == 0
        script = 'mount -t tmpfs -o size="$2" tombolo-test "$1" && echo mounted && exec cat'
        self.holder = Process("disk", ["unshare", "-m" if root else "-Urm", "sh", "-c", script, "sh", self.dir, size],
                              lab.dir / "disk.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        lab.processes.append(self.holder)
        if self.holder.popen.stdout.readline() != b"mounted\n":
            self.holder.popen.wait(20)
            raise Skipped("no mount namespace here: " + self.holder.log_path.read_text(errors="replace").strip())
        self.enter = ["nsenter", "-t", self.holder.popen.pid, "-m"] + ([] if root else ["-U", "--preserve-credentials"])
        self.seen = pathlib.Path(f"/proc/{self.holder.popen.pid}/root{self.dir}")

    def fill(self):
        with open(self.seen / "ballast", "wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(b"x" * 4096):
                pass

    def make_room(self):
        (self.seen / "ballast").unlink()

    def remount(self, how):
        subprocess.run([str(a) for a in [*self.enter, "mount", "-o", f"remount,{how}", self.dir]], check=True, timeout=20)


class SmallDisk(SmallMount):
    """One for a site's state."""

    def __init__(self, lab, site, size="2m"):
        super().__init__(lab, site.dir / "state", size)
        site.prefix = self.enter
        site.extra["store"] = {"path": self.dir / "store.sqlite"}
        for m in site.models.values():  # a user's own namespace may know its owner as 0
            m.setdefault("publish", sorted({f"unix:{os.getuid()}", "unix:0"}))
            m.setdefault("read", m["publish"])


class HugeMount:
    """A filesystem of huge pages for a site's arena, in a mount namespace. On hugetlbfs its
    pages are set aside as it begins; the holder gives them back when its input closes, also when
    the test is killed."""

    SCRIPT = """
        pool=/proc/sys/vm/nr_hugepages
        exec 9<$pool && flock 9 || exit 1 # the machine has one pool: another test that changes it waits here
        had=$(cat $pool) || exit 1
        back() { umount "$1"; [ "$2" != hugetlbfs ] || echo $had > $pool; }
        if [ "$2" = hugetlbfs ]; then
            size=$(awk '/^Hugepagesize:/ {print $2 * 1024}' /proc/meminfo)
            echo $((had + $3 / size + 1)) > $pool || exit 1
            if [ $(cat $pool) -le $((had + $3 / size)) ]; then back "$1" "$2"; echo "this machine cannot set aside $3 bytes in huge pages" >&2; exit 1; fi
            mount -t hugetlbfs tombolo-test "$1" || { back "$1" "$2"; exit 1; }
        else
            mount -t tmpfs -o huge=within_size,size="$3" tombolo-test "$1" || exit 1
        fi
        echo mounted; cat > /dev/null; back "$1" "$2"
    """

    def __init__(self, lab, site, kind, count):
        if os.geteuid() != 0:
            raise Skipped("only root may set huge pages aside")
        self.dir = site.dir / f"huge-{kind}"
        self.dir.mkdir()
        self.log = lab.dir / f"huge-{kind}.log"
        with open(self.log, "wb") as log:
            self.holder = subprocess.Popen(["unshare", "-m", "sh", "-c", self.SCRIPT, "sh", str(self.dir), kind, str(count)],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        if self.holder.stdout.readline() != b"mounted\n":
            self.holder.wait(20)
            raise Skipped(f"no {kind} with huge pages here: " + self.log.read_text(errors="replace").strip())
        if kind == "tmpfs" and not self.gives():
            self.close()
            raise Skipped("this machine's free memory is in too small pieces for a huge page now")
        site.prefix = ["nsenter", "-t", self.holder.pid, "-m"]
        site.arena_path = self.dir / "arena"

    def gives(self):
        """Whether a file on it gets a huge page: nobody has set any aside for tmpfs."""
        probe = pathlib.Path(f"/proc/{self.holder.pid}/root{self.dir}/probe")
        with open(probe, "w+b") as f:
            f.truncate(8 << 20)
            with mmap.mmap(f.fileno(), 8 << 20) as m:
                m[:] = bytes(len(m))
                mine = pathlib.Path("/proc/self/smaps").read_text().split(str(self.dir / "probe"), 1)
        probe.unlink()
        return any(int(kb) > 0 for kb in re.findall(r"ShmemPmdMapped: +(\d+) kB", mine[-1])[:1])

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(20)


class Veth:
    """Two namespaces and a pair of devices: a link without an emulator."""

    PREFIX = "tombolo-veth-"

    def __init__(self):
        if os.geteuid() != 0:
            raise Skipped("only root makes network namespaces")
        self.names = {site: f"{self.PREFIX}{os.getpid()}-{site}" for site in ("east", "west")}

    def __enter__(self):
        for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines():
            made = re.match(rf"{self.PREFIX}(\d+)-", line)
            if made and not os.path.exists(f"/proc/{made[1]}"):
                subprocess.run(["ip", "netns", "delete", line.split()[0]])
        try:
            self.make()
        except Skipped:
            self.__exit__()  # what was made before the step that failed
            raise
        return self

    def make(self):
        for i, (site, name) in enumerate(self.names.items()):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
            if i == 1:
                self.ip("link", "add", "wan0", "netns", self.names["east"], "type", "veth", "peer", "name", "wan0", "netns", name)
        for site, name in self.names.items():
            self.ip("-n", name, "addr", "add", self.address(site) + "/24", "dev", "wan0")
            self.ip("-n", name, "link", "set", "wan0", "up")

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    @staticmethod
    def ip(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"ip {' '.join(words)}: {done.stderr.strip()}")

    @staticmethod
    def address(site):
        return {"east": "10.202.0.1", "west": "10.202.0.2"}[site]

    def enter(self, site, argv):
        return ["ip", "netns", "exec", self.names[site], *argv]

    def link(self, state):
        self.ip("-n", self.names["west"], "link", "set", "wan0", state)


class Cores:
    """How busy others keep the machine: a gateway of ours that spins is no excuse for it."""

    def __init__(self):
        self.began = self.ticks()

    @staticmethod
    def ours():
        """Ticks of this process and all that came from it."""
        ticks, parents = {}, {}
        for process in leavings.processes():
            with contextlib.suppress(OSError):  # it just ended
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                pid = int(process.name)
                parents[pid] = int(fields[1])
                ticks[pid] = sum(int(n) for n in fields[11:15])  # with the children that it waited for
        total = 0
        for pid, used in ticks.items():
            while pid not in (os.getpid(), 0, None):
                pid = parents.get(pid)
            total += used if pid == os.getpid() else 0
        return total

    @classmethod
    def ticks(cls):
        fields = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4], cls.ours()  # all, idle, ours

    def taken(self):
        """Why a time since then says little; empty: it does."""
        all_ticks, idle, ours = (now - then for now, then in zip(self.ticks(), self.began))
        busy = 1 - (idle + max(ours, 0)) / max(all_ticks, 1)
        return f"others took {busy:.0%} of this machine's cores" if busy > OTHERS_BUSY else ""
