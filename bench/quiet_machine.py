"""Is the machine as a measurement needs it? Two things make a round void: another program was at
work, or the memory was not as fast behind the round as before it.

The host of a virtual machine may take idle memory back and give it again. A pass over such memory
is slow once, and so is each floor. So the floors of bench/ repeat a pass until two agree, and say
`steady`; a round that they were not steady in is void too."""

import os
import pathlib
import time

import lab as sites

MOVED = 0.10     # of a floor, across a round
BUSY = 0.10      # of a core, by one other process
PROBE = 512 << 20
PROC = pathlib.Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KERNEL = 2       # the parent of the kernel's threads


def processes():
    """{(pid, when it started): (name, parent, seconds of CPU)}"""
    found = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:].rsplit(") ", 1)
        fields = rest.split()
        found[int(folder.name), int(fields[19])] = (name, int(fields[1]), (int(fields[11]) + int(fields[12])) * TICK_S)
    return found


def strangers(now, own):
    """Those of `now` that descend from neither the process `own` nor the kernel's thread."""
    parents = {pid: parent for (pid, _), (_, parent, _) in now.items()}

    def ours(pid):
        while pid > 1 and pid not in (own, KERNEL):
            pid = parents.get(pid, 1)
        return pid in (own, KERNEL)
    return {key: row for key, row in now.items() if not ours(key[0])}


def busiest(before, now, own):
    """(name, seconds of CPU since `before`) of the stranger that used most."""
    used = [(name, cpu - before.get(key, ("", 0, 0.0))[2]) for key, (name, _, cpu) in strangers(now, own).items()]
    return max(used, key=lambda row: row[1], default=("", 0.0))


class Machine:
    """Of one run of the bench. begin() before a round, why_void() behind it."""

    def __init__(self, memory_copy):
        self.memory_copy = memory_copy
        self.floor = None
        self.before, self.start = {}, 0.0

    def probe(self):
        return sites.tool([self.memory_copy, "--bytes", PROBE])["gb_per_s"]

    def begin(self, floor=True):
        sites.UNSTEADY.clear()
        self.floor = self.probe() if floor else None
        self.before, self.start = processes(), time.monotonic()

    def why_void(self):
        """None: the round counts."""
        seconds = time.monotonic() - self.start
        name, cpu = busiest(self.before, processes(), os.getpid())
        if cpu > BUSY * max(seconds, 1.0):
            return f"{name} used {cpu / max(seconds, 1.0):.0%} of a core"
        if sites.UNSTEADY:
            return f"{sites.UNSTEADY[0]} found no two passes within 5 %"
        if self.floor is None:
            return None
        moved = self.probe() / self.floor - 1
        return f"memcpy moved by {moved:+.0%} across it" if abs(moved) > MOVED else None
