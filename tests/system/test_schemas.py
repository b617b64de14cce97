#!/usr/bin/env python3
"""The output of `tombolo ... --json` is as deploy/schemas describes it, field by field (P10).

A schema lets fields be added, as docs/control.md says. Here each field has to be in the schema. With
TB_SCHEMAS_SEEN=FILE a run appends to FILE each command and what it printed.

Covers: gateway/cli/output.c gateway/cli/operator/noun_commands.c gateway/daemon/control/site_status.c
Covers: gateway/cli/operator/control_fields.c
"""

import copy
import json
import os
import pathlib
import sys

from bundles import hugging_face
from harness import PATIENCE, SOURCE, Failed, Rollout, Skipped, Trainer, expect, main, scenario, up, wait_for

SCHEMAS = SOURCE / "deploy/schemas"
NAMES = {"version": ("model", "version"), "chain": ("model", "version"), "group": ("model", "group"), "stream": ("peer", "stream")}
SEEN = os.environ.get("TB_SCHEMAS_SEEN")


def strict(schema):
    """The same, and objects have no other fields."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {k: strict(v) for k, v in schema.items()}
    if "properties" in closed and isinstance(schema["properties"], dict) and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed


class Answers:
    """Runs commands, and holds each line that they print to the schema of the command."""

    def __init__(self):
        try:
            import jsonschema  # noqa: PLC0415
        except ImportError:
            raise Skipped("python3-jsonschema is not installed (deploy/setup --tests)") from None
        self.make = jsonschema.Draft202012Validator
        self.validators, self.seen = {}, set()

    def of(self, name):
        if name not in self.validators:
            path = SCHEMAS / f"{name.replace(' ', '-')}.schema.json"
            self.validators[name] = self.make(strict(json.loads(path.read_text()))) if path.exists() else None
        return self.validators[name]

    def look(self, name, value):
        self.seen.add(name)
        if SEEN:
            with pathlib.Path(SEEN).open("a") as out:
                out.write(json.dumps({"command": name, "value": value}) + "\n")
            return
        found = sorted(self.of(name).iter_errors(value), key=lambda e: len(e.path))
        if found:
            deep = min((c for e in found for c in (e.context or [e])), key=lambda c: -len(c.path))
            raise Failed(f"{name}: at {list(deep.path)}: {deep.message[:300]}")

    def run(self, site, name, *args, code=0):
        done = site.cli(*name.split(), *args, "--json", check=False)
        expect(f"exit code of {name} {args} ({done.stderr} {done.stdout[:300]})", done.returncode, code)
        lines = done.stdout.splitlines()
        expect(f"{name} printed something", len(lines) > 0, True)
        for line in lines:
            self.look(name, json.loads(line))
        return json.loads(lines[-1])


def of_versions(a, lab, east, west):
    """Publish, subscribe, and what an operator decides about versions."""
    folders = [hugging_face(lab.dir / f"s{n}", n) for n in (1, 2, 3)]
    a.run(east, "publish", "policy", folders[0], "--version", 1, "--dry-run")
    a.run(east, "publish", "policy", folders[0], "--version", 1, "--wait", "west,east:held")
    a.run(east, "publish", "policy", folders[1], "--version", 2, "--dry-run")
    a.run(east, "publish", "policy", folders[1], "--version", 2, "--new-run", "--run", "k")
    a.run(west, "subscribe", "policy", "--into", lab.dir / "into", "--timeout", PATIENCE)
    a.run(east, "publish", "polcy", folders[1], "--version", 2, code=5)
    a.run(east, "pin", "policy", "2:2", "--dry-run")
    a.run(east, "pin", "policy", "2:2")
    a.run(east, "unpin", "policy")
    a.run(east, "unpin", "policy")
    a.run(east, "unpin", "polcy", code=1)
    a.run(west, "rollback", "policy", "1:1", "--dry-run")
    a.run(west, "rollback", "policy", "1:1", "--reason", "why")
    a.run(west, "withdraw", "policy", "2:2", "--dry-run")
    a.run(west, "withdraw", "policy", "2:2")
    a.run(west, "unpin", "policy", "--dry-run")
    for cmd in ("pause", "resume"):
        a.run(east, cmd, "model", "policy", "--dry-run")
        a.run(east, cmd, "model", "policy")
        a.run(east, cmd, "peer", "west")
    a.run(east, "verify", "policy", "--live")
    a.run(west, "adopt", "policy", lab.dir / "into", "--timeout", PATIENCE)
    return folders


def of_nouns(a, east, west):
    for site in (east, west):
        for noun in ("status", "sites", "peers", "models", "versions", "workers", "groups", "streams", "chains", "lag", "gc"):
            a.run(site, noun, *(["--dry-run"] if noun == "gc" else []))
    a.run(east, "versions", "polcy", code=1)
    for noun in ("site", "peer", "model", "version", "worker", "group", "stream", "chain"):
        header, *rows = (line.split("\t") for line in east.cli(f"{noun}s", "-o", "tsv").stdout.splitlines())
        if not rows:
            raise Failed(f"no {noun} at east")
        row = dict(zip(header, rows[0]))
        a.run(east, "describe", noun, "/".join(row[key] for key in NAMES.get(noun, (noun,))))
    a.run(east, "describe", "site", "nowhere", code=1)


def of_operators(a, east):
    a.run(east, "limit", "west")
    a.run(east, "limit", "west", "--rate", "6Mbit", "--schedule", "08:00-18:00 50Mbit", "--day-bytes", "2TiB", "--dry-run")
    a.run(east, "limit", "north", code=1)
    a.run(east, "gc", "--reason", "why")
    a.run(east, "audit")
    a.run(east, "events")
    a.run(east, "reload", "--dry-run")
    a.run(east, "reload")


def of_configurations(a, lab, east):
    file = east.dir / "tombolod.yaml"
    other = lab.dir / "other.yaml"
    other.write_text(file.read_text().replace("keep: 2", "keep: 3"))
    broken = lab.dir / "broken.yaml"
    broken.write_text("site: 1\nnonsense: true\n")
    a.run(east, "config check", file, code=json.loads(east.cli("config", "check", file, "--json", check=False).stdout)["ok"] is False)
    a.run(east, "config check", broken, code=1)
    a.run(east, "config show")
    a.run(east, "config show", "--effective", file)
    a.run(east, "config show", file, "--model", "policy")
    a.run(east, "config explain")
    a.run(east, "config explain", "peers.west.rate")
    a.run(east, "config diff", file, other, code=8)
    a.run(east, "config diff", file)


def of_the_machine(a, lab, east):
    backup, file = lab.dir / "east.backup", east.dir / "tombolod.yaml"
    a.run(east, "backup", backup)
    a.run(east, "backup", backup, code=1)
    a.run(east, "restore", backup, "--under", lab.dir, "--overwrite", "--dry-run", "--in-clear")
    wrong = json.loads(east.cli("doctor", "--config", file, "--json", check=False).stdout)["ok"] is False  # as this machine is
    a.run(east, "doctor", "--config", file, code=int(wrong))
    a.run(east, "doctor", "--config", lab.dir / "broken.yaml", code=1)


def of_certificates(a, lab, east):
    d = lab.dir / "pki-of-it"
    a.run(east, "pki init", "--dir", d / "root", "--site", "east")
    a.run(east, "pki init", "--dir", d / "root", "--site", "east", code=1)
    a.run(east, "pki intermediate", "--root", d / "root", "--dir", d / "issuing")
    a.run(east, "pki issue", "tombolo://east/gw", "--dir", d / "issuing")
    a.run(east, "pki issue", "--publisher", "trainer", "--dir", d / "issuing")
    a.run(east, "pki request", "tombolo://east/other", "--dir", d / "issuing")
    a.run(east, "pki sign", d / "issuing/other.csr", "tombolo://east/other", "--dir", d / "issuing")
    a.run(east, "pki show", d / "issuing")
    a.run(east, "pki show", "--config", east.dir / "tombolod.yaml")
    a.run(east, "pki renew", d / "issuing/gw.crt", "--dir", d / "issuing")
    a.run(east, "pki revoke", d / "issuing/gw.crt", "--list", d / "revoked")
    a.run(east, "pki rollover", "begin", "--dir", d / "root")
    a.run(east, "init", "north", "--peer", "east", "--dir", d / "north")
    a.run(east, "bugreport", "--into", lab.dir)


@scenario
def each_answer_fits_its_schema(lab):
    """P10: of every command that has --json, with two gateways, a trainer and a reader group."""
    a = Answers()
    east, west, _ = lab.east_west()
    for site in (east, west):
        site.models["other"] = dict(home="east")
    up(east, west)
    weights = lab.weights(1)[0]
    trainer = Trainer(lab, east, weights, model="other")
    uid = trainer.publish(1)
    reader = Rollout(lab, east, "w0", weights, model="other")
    reader.stage(uid)
    reader.activate(uid)
    of_versions(a, lab, east, west)
    wait_for("streams are there", lambda: any(link["streams"] for link in east.control("streams")["links"]))
    of_nouns(a, east, west)
    of_operators(a, east)
    of_configurations(a, lab, east)
    of_the_machine(a, lab, east)
    of_certificates(a, lab, east)
    a.run(west, "drain", "--dry-run")
    a.run(west, "drain")
    expect("no gateway", west.daemon.ended(), 0)
    a.run(west, "status", code=3)
    named = {p.name.removesuffix(".schema.json").replace("-", " ") for p in SCHEMAS.glob("*.schema.json")}
    expect("schemas that no command was held to", sorted(named - a.seen), [])


@scenario
def a_schema_refuses_what_it_should(lab):
    """The twin: an answer that lacks a field, has one of another type, or one more, fits no schema."""
    a = Answers()
    good = {"schema": 1, "ok": True, "run": 1, "number": 2, "uid": "0" * 32, "before": "kept", "who": "x", "where": "here"}
    a.of("withdraw").validate(good)
    for change in ({"run": "1"}, {"more": 1}, {"schema": 2}, {"ok": False}):
        bad = {**copy.deepcopy(good), **change}
        expect(f"{change} fits", a.of("withdraw").is_valid(bad), False)
    for key in good:
        expect(f"without {key}", a.of("withdraw").is_valid({k: v for k, v in good.items() if k != key}), False)


if __name__ == "__main__":
    sys.exit(main())
