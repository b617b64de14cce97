#!/usr/bin/env python3
"""From nothing to a link that is up: tombolo init, and the commands of docs/two-sites.md.

Covers: gateway/cli/init_command.c
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

from harness import BUILD, SOURCE, TOMBOLO, TOMBOLOD, Failed, Process, Skipped, expect, main, scenario, wait_for

PAGE = SOURCE / "docs/two-sites.md"


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
    tombolo("subscribe", "policy", "--into", lab.dir / "into", "--gateway", gateway["west"], "--timeout", "60s")
    expect("bytes", next((lab.dir / "into").glob("*/weights")).read_bytes(), (lab.dir / "weights").read_bytes())
    firewall = places["east"] / "east/firewall.nft"
    expect("the port is in it", f"dport {port} " in firewall.read_text(), True)
    expect("a side that dials opens none", (places["west"] / "west/firewall.nft").exists(), False)
    if subprocess.run("nft list ruleset", shell=True, capture_output=True, check=False).returncode == 0:
        subprocess.run(["nft", "-c", "-f", firewall], check=True)
    key = (places["east"] / "east/ca.key").read_bytes()
    again = tombolo("init", "east", "--peer", "north", "--dir", places["east"], code=1)
    expect("what is there stays", ("left alone" in again, (places["east"] / "east/ca.key").read_bytes()), (True, key))


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


if __name__ == "__main__":
    main()
