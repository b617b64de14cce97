#!/usr/bin/env python3
"""`tombolo bugreport`: what somebody elsewhere needs, and none of the secrets of the site (P8).

Covers: gateway/cli/operator/bugreport_command.c gateway/cli/operator/redact.c
"""

import base64
import json
import os
import pathlib
import secrets
import sys

from harness import Failed, Trainer, expect, main, scenario

ANSWERS = ["status.json", "lag.json", "versions.json", "streams.json", "chains.json", "config.yaml", "events.jsonl"]


def reported(site, lab, *options):
    done = site.cli("bugreport", "--into", lab.dir, "--json", *options)
    said = json.loads(done.stdout)
    folder = pathlib.Path(said["folder"])
    expect("its files", sorted(f.name for f in folder.iterdir()), sorted(said["files"]))
    expect("who may read them", {oct(p.stat().st_mode & 0o777) for p in folder.iterdir()} | {oct(folder.stat().st_mode & 0o777)}, {"0o600", "0o700"})
    return said, {f.name: f.read_text() for f in folder.iterdir()}


def secrets_of(lab):
    """Each secret in the lab's folders, in the forms in which a report might have it: lines of keys
    in PEM, and keys of files as digits and as base64."""
    found = {}
    for path in lab.dir.rglob("*.key"):
        data = path.read_bytes()
        lines = [line for line in data.decode(errors="replace").splitlines() if len(line) > 20 and not line.startswith("-----")]
        found.update({line: path for line in lines})
        if len(data) == 32:
            found.update({form: path for form in (data.hex(), base64.b64encode(data).decode())})
    return found


@scenario
def a_report_has_no_secret_of_the_site(lab):
    """P8: keys of certificates, the key of the disk, and what an operator wrote into a reason."""
    east, west, _ = lab.east_west()
    disk_key = lab.dir / "disk.key"
    disk_key.write_bytes(secrets.token_bytes(32))
    disk_key.chmod(0o600)
    east.extra["disk"] = {"key": str(disk_key)}
    east.start()
    west.start()
    east.wait_link("west")
    trainer = Trainer(lab, east, lab.weights(1)[0])
    west.wait_holds(trainer.publish(1))
    said = "w" + secrets.token_hex(20)
    east.cli("pause", "model", "policy", "--reason", f"the password: {said} of ann")
    answer, files = reported(east, lab)
    expect("what it lacks", (answer["missing"], sorted(answer["files"])), ([], sorted([*ANSWERS, "machine.txt"])))
    expect("what it has", [json.loads(files["status.json"])["site"], len(json.loads(files["lag.json"])["lag"])], ["east", 2])
    for words, name in (("disk:", "config.yaml"), ("link.up", "events.jsonl"), ("kernel: Linux", "machine.txt"), ("tcp_wmem", "machine.txt")):
        expect(f"{words} in {name}", words in files[name], True)
    expect("the pause", '"model": "policy"' in files["status.json"].split('"pauses"')[1], True)
    known = {**secrets_of(lab), said: "a reason"}
    if len(known) < 5:
        raise Failed(f"the lab has no keys: {known}")
    for secret, path in known.items():
        for name, text in files.items():
            if secret in text or (len(secret) > 40 and secret[:40] in text):
                raise Failed(f"{name} has what stands in {path}")
    everything = "".join(files.values())
    expect("an address", "127." in everything, True)
    _, files = reported(east, lab, "--no-addresses")
    for name in ANSWERS:
        if name != "machine.txt" and str(east.port) and f"{east.address}:" in files[name]:
            raise Failed(f"{name} has an address")


@scenario
def a_report_is_made_without_a_gateway(lab):
    """P10: it is needed most where nothing answers: the files say so, and the machine is there."""
    east = lab.site("east")
    answer, files = reported(east, lab)
    expect("what it lacks", sorted(answer["missing"]), sorted(ANSWERS))
    expect("why", ("no gateway answers" in files["status.json"] or "control" in files["status.json"], "cores: " in files["machine.txt"]), (True, True))
    done = east.cli("bugreport", "--into", lab.dir / "nowhere", check=False)
    expect("a folder that is not there", (done.returncode, str(os.strerror(2)) in done.stderr), (7 if done.returncode == 7 else 1, True))


if __name__ == "__main__":
    sys.exit(main())
