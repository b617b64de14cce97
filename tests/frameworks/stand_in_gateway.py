"""A stand-in for a gateway's control socket: it answers what a test says, in the form of docs/control.md.

For what no machine here has, such as a fleet of 200 sites; whatever a real gateway can say comes
from one."""

import contextlib
import json
import os
import socket
import threading


class StandIn:
    """`answers` is {command: function that gives the line}. Each call is counted in `asked`."""

    def __init__(self, path, answers):
        self.path, self.answers, self.asked = str(path), answers, {}
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            for line in lines:
                command = json.loads(line)["cmd"]
                self.asked[command] = self.asked.get(command, 0) + 1
                connection.sendall(self.answers[command]())

    def close(self):
        self.socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class Fleet:
    """200 sites by 50 models, as the home of all of them sees it. `step` changes some pairs."""

    def __init__(self, sites=200, models=50):
        self.sites = [f"site-{i:03d}" for i in range(sites)]
        self.models = [f"model-{i:02d}" for i in range(models)]
        self.steps = 0
        self._lines = {}

    def step(self):
        """Other pairs are behind from here on. The answers are written before anybody asks: what a
        question takes is how often tombolo-web asks it."""
        self.steps += 1
        self._write()

    def _row(self, at, site, model):
        behind = 2 if (at + self.steps) % 97 == 0 else 0
        unknown = site.endswith("7") and at % 50 == 3
        row = dict(model=model, site=site, home=self.sites[0], via=site, known=not unknown, heard_s=0.4, head="1:8",
                   latest="1:6" if behind else "1:8", active="1:6" if behind else "1:8", versions=behind, bytes=behind * 134_000_000,
                   seconds=behind * 20.0, reason="crossing" if behind else "up-to-date", why="it is on its way" if behind else "it has the head",
                   evidence="the link carries 80 Mbit/s, its rtt is 81 ms, no limit" if behind else "", eta_s=[3.0, 9.0] if behind else None)
        if unknown:
            row.update(versions=None, bytes=None, seconds=None, reason="link-down", why="no link that could bring it is up", eta_s=None)
        return row

    def lag(self):
        pairs = [(site, model) for site in self.sites for model in self.models]
        return {"lag": [self._row(at, site, model) for at, (site, model) in enumerate(pairs)]}

    def status(self):
        links = [dict(site=site, gateway="gw", state="dialling" if site.endswith("7") else "up", since_s=5000.0 + self.steps,
                      reason="link-down" if site.endswith("7") else "", error="", rtt_ms=80.0 + at % 9, streams=4, sent_raw_bytes=10 ** 10 + self.steps * 10 ** 8,
                      sent_bytes=10 ** 9 + self.steps * 10 ** 7, received_bytes=10 ** 6, goodput_bytes_per_s=10 ** 7 + at * 1000 + self.steps)
                 for at, site in enumerate(self.sites[1:])]
        return {"site": self.sites[0], "gateway": "gw", "version": "0.1.0", "uptime_s": 5000.0 + self.steps, "draining": False, "store_ok": True,
                "links": links, "tables": [], "arena": {"bytes": 10 ** 12, "used": 4 * 10 ** 11, "largest_free": 10 ** 11, "verified": True},
                "counters": {}, "groups": [], "sessions": []}

    def versions(self):
        return {"versions": [dict(model=model, run=1, number=8, uid=f"{at:032x}", state="kept", bytes=268_000_000, held_bytes=268_000_000,
                                  opened_ms=1_700_000_000_000 + at, whole_s=0.4, wire_bytes=10 ** 6, stages={"landing_s": 0.4},
                                  sites=[dict(site=site, known=True, whole=True, held_bytes=268_000_000, activated=True) for site in self.sites[1:]])
                             for at, model in enumerate(self.models)]}

    def _write(self):
        fields = {"status": self.status(), "lag": self.lag(), "versions": self.versions(), "streams": {"links": []},
                  "chains": {"chains": []}, "events": {"events": [], "first": 0, "last": 0}}
        self._lines = {command: json.dumps({"schema": 1, "ok": True, **of}).encode() + b"\n" for command, of in fields.items()}

    def answers(self):
        self._write()
        return {command: lambda command=command: self._lines[command] for command in self._lines}
