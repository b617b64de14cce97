"""Two sites: a gateway each, and processes beside them, on loopback or in a lab of sim/wan.

East is the model's home and listens. West subscribes and dials. All of it ends with the context."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import Any

ARENA = "192MiB"
PATIENCE_S, GRACE_S = 60, 10


class Failed(Exception):
    """A process of the sites ended, or did not come up. The text has the end of its log."""


def free_port(address: str) -> int:
    with socket.socket() as asked:
        asked.bind((address, 0))
        return int(asked.getsockname()[1])


class Sites:
    """build: the folder of the programs. wan: a lab with sites east and west; None: loopback."""

    def __init__(self, folder: pathlib.Path, build: pathlib.Path, wan: Any = None) -> None:
        self.folder, self.build, self.wan = folder, build, wan
        self.address = "127.0.0.1" if wan is None else wan.address("east")
        self.ports = [free_port("127.0.0.1") for _ in range(2)]  # of the link, and of the trainer
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Sites":
        try:
            for site in ("east", "west"):
                pki = self.folder / site / "pki"
                self.tombolo("pki", "init", "--quiet", "--dir", pki, "--site", site)
                self.tombolo("pki", "issue", "--quiet", "--dir", pki, "--out", "gw", f"tombolo://{site}/gw")
            self.configure(
                "east", "west", f"link:\n  listen: {self.address}:{self.ports[0]}\n", "", "subscribe: []\n"
            )
            self.configure(
                "west",
                "east",
                "",
                f"    address: {self.address}:{self.ports[0]}\n",
                "subscribe:\n  - model: policy\n    from: [east]\n",
            )
            for site in ("east", "west"):
                daemon = self.build / "gateway/daemon/tombolod"
                self.start(
                    site,
                    f"gateway of {site}",
                    [
                        daemon,
                        "--config",
                        self.folder / site / "tombolod.yaml",
                        *(["--new-home"] if site == "east" else []),
                    ],
                )
            for site in ("east", "west"):
                self.wait_up(site)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Asks, waits, insists: the youngest first."""
        for process in reversed(self.processes.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE_S
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # ---- the gateways ----

    def tombolo(self, *words: Any) -> None:
        done = subprocess.run(
            [self.build / "gateway/cli/tombolo", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(
                f"tombolo {words[0]} {words[1]} exited with {done.returncode}: {done.stderr.strip()}"
            )

    def configure(self, site: str, other: str, link: str, address: str, subscribe: str) -> None:
        at, me = self.folder / site, f"unix:{os.getuid()}"
        (at / "tombolod.yaml").write_text(
            f"""site: {site}
gateway: gw
control:
  socket: {at}/control.sock
session:
  socket: {at}/session.sock
store:
  path: {at}/store.sqlite
arena:
  path: {at}/arena
  bytes: {ARENA}
tls:
  ca: {at}/pki/ca.crt
  cert: {at}/pki/gw.crt
  key: {at}/pki/gw.key
{link}peers:
  {other}:
    gateway: gw
    ca: {self.folder / other}/pki/ca.crt
{address}models:
  policy:
    home: east
    keep: 4
    publish: ["{me}"]
    read: ["{me}", "tombolo://west/gw"]
{subscribe}""",
            encoding="utf-8",
        )

    def gateway(self, site: str) -> str:
        return f"unix:{self.folder / site / 'session.sock'}"

    def control(self, site: str) -> str:
        return str(self.folder / site / "control.sock")

    def wait_up(self, site: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asked:
                asked.settimeout(5)
                asked.connect(self.control(site))
                asked.sendall(b'{"schema": 1, "cmd": "status"}\n')
                if json.loads(asked.makefile().readline())["links"][0]["state"] == "up":
                    return
            self.check()
            if time.monotonic() > end:
                raise Failed(
                    f"the link of {site} is not up after {PATIENCE_S} s\n{self.log_of(f'gateway of {site}')}"
                )
            time.sleep(0.05)

    # ---- processes ----

    def start(
        self, site: str, name: str, words: list[Any], shown: bool = False, **environment: str
    ) -> subprocess.Popen[bytes]:
        """In a group of its own: a terminal's Ctrl-C reaches this process, which ends it."""
        argv = [str(word) for word in words]
        if self.wan is not None:
            argv = self.wan.enter(site, argv)
        with open(self.log(name), "wb") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=None if shown else log,
                stderr=log,
                start_new_session=True,
                # The watchdog may not see the mark of a gateway: PR_SET_PDEATHSIG ends it too.
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0),
                env={**os.environ, **environment},
                cwd=self.folder,
            )
        self.processes[name] = process
        return process

    def log(self, name: str) -> pathlib.Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def log_of(self, name: str, lines: int = 15) -> str:
        text = self.log(name).read_text(encoding="utf-8", errors="replace").rstrip().split("\n")[-lines:]
        return "\n".join([f"the log of the {name} ends with:", *text])

    def check(self, but: str = "") -> None:
        """Raises where one has failed."""
        for name, process in self.processes.items():
            if name != but and process.poll() not in (None, 0):
                raise Failed(f"the {name} ended with {process.returncode}\n{self.log_of(name)}")
