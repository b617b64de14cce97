"""Two thousand workers behind one address, of which none may keep the others out: their gateway is killed, and all of them come
back at once. Prints how long that took.

Covers: base/limits/handshake_limits.c gateway/daemon/sessions/session_limits.c
"""

import asyncio
import os
import pathlib
import random
import resource
import struct
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from certificates import URI  # noqa: E402
from forger import east_of  # noqa: E402
from harness import PATIENCE_S, Failed, expect, main, scenario, wait_for  # noqa: E402
from hostile import SESSION_HELLO, WELCOME, frame, session_hello, tls  # noqa: E402

RENEW = 4
WORKERS = int(os.environ.get("TB_RETURNS", "2000"))
IDENTITIES = 20
LEASE_MS = 10000
TICKS = os.sysconf("SC_CLK_TCK")
AT_ONCE = 64  # one process plays all hosts: were more under way, its own loop would be what is measured


class Clock:
    """Seconds, and those of them that this machine left to us: what other programs take of its cores is no time of ours."""

    def __init__(self):
        self.began, self.own, self.busy = time.monotonic(), time.process_time(), self.all_busy()

    @staticmethod
    def all_busy():
        row = [int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(row) - row[3] - row[4]) / TICKS

    def read(self, site):
        """`site` started meanwhile."""
        fields = pathlib.Path(f"/proc/{site.daemon.popen.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        ours = time.process_time() - self.own + (int(fields[11]) + int(fields[12])) / TICKS
        seconds = time.monotonic() - self.began
        others = max(0.0, self.all_busy() - self.busy - ours) / os.cpu_count()
        return seconds, max(seconds - others, ours / os.cpu_count())


class Fleet:
    """Workers that hold a session each, and dial again until they are welcome."""

    def __init__(self, forger, to):
        self.to, self.contexts, self.tries = to, [], 0
        for i in range(IDENTITIES):
            name = f"w{i}"
            forger.east.issue(name, (URI, f"tombolo://east/worker/{name}".encode()))
            self.contexts.append(tls(forger.east.folder / "ca.crt", forger.east.folder / f"{name}.crt", forger.east.key))
        self.sessions = [bytes(16)] * WORKERS
        self.writers = [None] * WORKERS

    async def dial(self, i):
        reader, writer = await asyncio.open_connection(*self.to, ssl=self.contexts[i % IDENTITIES], server_hostname="")
        writer.write(frame(SESSION_HELLO, session_hello(f"worker-{i}", f"host-{i}", session=self.sessions[i]), request=1))
        count, kind, _, _ = struct.unpack("<IHHQ", await reader.readexactly(16))
        said = await reader.readexactly(count)
        if kind != WELCOME:
            raise Failed(f"worker {i} is refused: {said}")
        self.sessions[i] = said[4:20]
        self.writers[i] = writer

    async def enter(self, i):
        while self.writers[i] is None:
            try:
                async with self.under_way:
                    self.tries += 1
                    await self.dial(i)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(random.uniform(0.02, 0.2))

    async def renew(self):
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            for writer in self.writers:
                if writer is not None and not writer.is_closing():
                    writer.write(frame(RENEW, b""))

    async def all(self):
        self.tries, self.under_way = 0, asyncio.Semaphore(AT_ONCE)
        await asyncio.wait_for(asyncio.gather(*(self.enter(i) for i in range(WORKERS))), 10 * PATIENCE_S)


def returned(lab, **limits):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * WORKERS + 512), hard))
    forger, east = east_of(lab)
    east.extra.pop("limits", None)
    east.extra["session"].update(max=WORKERS * 3 // 2, lease_ms=LEASE_MS, **limits)  # who only reads has three quarters of them
    east.models["policy"].update(read=["tombolo://east/worker/w*"])
    east.start()
    fleet = Fleet(forger, (lab.address, east.worker_port))

    async def life():
        renewal = asyncio.create_task(fleet.renew())
        await fleet.all()
        east.kill()
        for writer in fleet.writers:
            writer.transport.abort()
        fleet.writers = [None] * WORKERS
        clock = Clock()
        east.start()
        await fleet.all()
        seconds, given = clock.read(east)
        print(f"{WORKERS} workers of one address were back {seconds:.1f} s after the start of their gateway, {given:.1f} s of them this machine's own, by "
              f"{fleet.tries} dials; a lease is {LEASE_MS / 1000:.0f} s")
        expect("workers that are there", east.control("status")["session_count"], WORKERS)
        expect("within a lease", given < LEASE_MS / 1000 or "TB_SANITIZED" in os.environ, True)
        renewal.cancel()

    asyncio.run(life())


@scenario
def workers_behind_one_address_return(lab):
    """P6 P7: nothing names their network: of their address so many handshakes are open at once as are allowed by default."""
    returned(lab)


@scenario
def workers_of_a_named_network_return(lab):
    """P6 P7: session.networks names it."""
    returned(lab, networks=["127.0.0.0/8"])


if __name__ == "__main__":
    sys.exit(main())
