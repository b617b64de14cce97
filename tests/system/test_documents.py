#!/usr/bin/env python3
"""The documents are right about a running gateway: fields of the control socket, counters.

Covers: docs/control.md docs/protocol.md gateway/daemon/control/control.c
Covers: gateway/daemon/control/site_status.c gateway/daemon/control/link_status.c
Covers: gateway/daemon/control/version_status.c
Covers: gateway/daemon/control/chain_status.c
"""

import json
import random
import re
import sys

from harness import PATIENCE_S, SOURCE, TOMBOLO, Failed, Rollout, Trainer, expect, main, scenario, up, wait_for
from second_site import SecondSite, joined_of, tls_of


def tables(text):
    """{heading or `name[]` before a table: [names in its first column]}"""
    found, title = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif re.match(r"`\w+\[\](\.\w+)?`:", line):
            title = line[1:line.index("`", 1)].replace("[]", "")
        elif line.startswith("| `"):
            found.setdefault(title, []).extend(re.findall(r"`(\w+)`", line.split("|")[1]))
    return found


def same_names(what, served, documented):
    expect(f"{what}: served, but not in the document", sorted(set(served) - set(documented)), [])
    expect(f"{what}: in the document, but not served", sorted(set(documented) - set(served)), [])


@scenario
def the_control_page_is_what_is_served(lab):
    """P10: an operator's program that was written after docs/control.md finds each field, and no
    other."""
    east, west, _ = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1, path)
    west.wait_holds(uid)
    rollout = Rollout(lab, west, "w0", path)
    rollout.stage(uid)
    rollout.activate(uid)
    wait_for("west says that it activated it", lambda: any(s["activated"] for s in east.version(uid)["sites"]))

    chains = west.control("chains", model="policy")["chains"]
    page = tables((SOURCE / "docs/control.md").read_text())
    status = west.control("status")
    same_names("status", set(status) - {"schema", "ok"}, page["status"])
    same_names("tables[]", {t["table"] for t in status["tables"]} & set(page["tables"]), page["tables"])
    for name in ("links", "models", "sessions", "groups"):
        if not status[name]:
            raise Failed(f"status: {name} is empty")
        for row in status[name]:
            same_names(f"{name}[]", row, page[name])
    for row in status["links"]:
        same_names("links[].limit", row["limit"], page["links.limit"])
    expect("chains of one version with one worker", [len(c["members"]) for c in chains], [2])
    same_names("chains", chains[0], page["chains"])
    same_names("members[]", set(chains[0]["members"][0]) | set(chains[0]["members"][1]), page["members"])
    (update,) = (s["updates"][0] for s in status["sessions"] if s["updates"])
    same_names("updates[]", set(update) - {"model", "group", "run", "number"}, page["members.update"])
    (update,) = (m["update"] for m in chains[0]["members"] if m.get("update"))
    same_names("members[].update", update, page["members.update"])
    arena = re.search(r"^\| `arena` .*$", (SOURCE / "docs/control.md").read_text(), re.M).group(0)
    same_names("arena", status["arena"], set(re.findall(r"`(\w+)`", arena)) - {"arena"})
    for site, inner in ((west, "workers"), (east, "sites")):
        version = site.version(uid)
        same_names("versions", version, page["versions"])
        if not version[inner]:
            raise Failed(f"versions: {inner} is empty")
        for row in version[inner]:
            same_names(f"{inner}[]", row, page[inner])


def rows_of(site, command, of):
    """The row for that site, as the command prints it with --json."""
    reply = json.loads(site.cli(command, "--json").stdout)
    (row,) = (r for r in reply["lag" if command == "lag" else "links"] if r["site"] == of)
    return row


def lag_as_text(site, of):
    """The words of that site's row, and the line behind it."""
    lines = site.cli("lag", "policy", "--why").stdout.splitlines() + [""]
    (at,) = (i for i, line in enumerate(lines) if line.split()[1:2] == [of])
    return re.split(r"\s{2,}", lines[at].strip()), lines[at + 1]


def lag_behind_a_cut(east, trainer):
    """West's row at east while a version is published behind the cut. Its uid and size."""
    uid = trainer.publish(2)
    wait_for("it is ready", lambda: east.version(uid)["state"] in ("ready", "kept"))
    size = east.version(uid)["bytes"]
    row = wait_for("west was silent for a second", lambda: rows_of(east, "lag", "west")["heard_s"] > 1 and rows_of(east, "lag", "west"))
    expect("west's row", {k: row[k] for k in ("model", "home", "head", "latest", "versions", "bytes", "seconds", "reason", "eta_s")},
           {"model": "policy", "home": "east", "head": "1:2", "latest": "1:1", "versions": None, "bytes": None, "seconds": None, "reason": "link-down",
            "eta_s": None})
    words, below = lag_as_text(east, "west")
    expect("the same as text", words[:10], ["policy", "west", "1:2", "1:1", "-", "?", "?", "?", "?", "link-down"])
    expect("its last word's age", float(words[10]) >= 1, True)
    expect("the line below", below, f"  {row['why']}: {row['evidence']}")
    return uid, size


def streams_of_a_crossing(site, of, way):
    """A link's row while bytes cross it. `way`: sent or received, what a stream does with them
    here."""
    def moving():
        link = rows_of(site, "streams", of)
        rows = link["streams"]
        moved = any(s[f"{way}_bytes"] > 0 and s[f"{way}_bytes_per_s"] > 0 and s["records"] > 0 for s in rows)
        return moved and link["goodput_bytes_per_s"] > 0 and all(s["open"] and s["rtt_ms"] > 0 for s in rows) and link
    link = wait_for(f"streams of {site.name} move", moving)
    expect("streams", len(link["streams"]), 4)
    if not link["up"] or not link["rtt_ms"] > 0:
        raise Failed(f"the link's row is {link}")
    for row in link["streams"]:
        # The state of a connection that was not asked to carry much: openssl.
        if row["encryption"] not in ("tombolo", "kernel") or not row["congestion"] or row["retransmitted_bytes"] < 0:
            raise Failed(f"a stream's row is {row}")
    if sum(row["retransmitted_bytes"] for row in link["streams"]) > link["retransmitted_bytes"]:
        raise Failed(f"streams sent more again than their link: {link}")
    text = [line.split("\t") for line in site.cli("streams", "-o", "tsv").stdout.splitlines()]
    at = [text[0].index(key) for key in ("peer", "stream", "encryption")]
    expect("the same as text", [[row[i] for i in at] for row in text[1:]], [[of, str(s["stream"]), s["encryption"]] for s in link["streams"]])


def evidence_of_a_crossing(site, words, size):
    """West's row at that site, once it crosses, is less by what east heard that west holds, and
    its evidence is these.

    The cause that held a stream is of a quarter of a second, and east hears of whole chunks only: the row
    is waited for.
    """
    def row():
        r = rows_of(site, "lag", "west")
        return r["reason"] in ("crossing", "rate-limited") and 0 < r["bytes"] < size and re.fullmatch(words, r["evidence"]) and r
    return wait_for(f"{site.name} says what of it has crossed, and by what it concludes it", row)


@scenario
def lag_and_streams_say_what_is_so(lab):
    """P10: of a site that is cut off, then of one to which a version crosses: versions, bytes,
    seconds, the reason and its evidence, and what each stream does."""
    east, west, link = lab.east_west()
    east.extra["link"] = {"codec": "raw", "protocol_max": 1}  # whole versions
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    west.wait_holds(trainer.publish(1))
    wait_for("east knows it", lambda: rows_of(east, "lag", "west")["reason"] == "up-to-date")
    expect("who is not behind", lag_as_text(east, "west")[0], ["policy", "west", "1:1", "1:1", "-", "0", "0", "0", "-", "up-to-date"])
    link.refusing = True
    link.cut()
    wait_for("the link is down", lambda: not rows_of(east, "streams", "west")["up"] and not rows_of(west, "streams", "east")["up"])
    uid, size = lag_behind_a_cut(east, trainer)
    r = rows_of(west, "lag", "west")
    expect("of what west has not heard it says nothing", [r[k] for k in ("known", "versions", "bytes", "latest")], [False, None, None, "1:1"])
    east.cli("limit", "west", "--rate", "6Mbit")  # half a minute for a version
    link.refusing = False
    west.wait_held_some(uid)
    streams_of_a_crossing(east, "west", "sent")
    streams_of_a_crossing(west, "east", "received")
    for site, words in ((east, r"to west: \d+ bytes/s over 4 streams, rtt \d+\.\d ms, limited by cap \(6Mbit\)"),
                        (west, r"from east: \d+ bytes/s over 4 streams, rtt \d+\.\d ms")):
        expect("versions behind", evidence_of_a_crossing(site, words, size)["versions"], 1)
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(uid)
    wait_for("nobody is behind", lambda: [rows_of(s, "lag", "west")["reason"] for s in (east, west)] == ["up-to-date", "no-subscriber"])


@scenario
def each_counter_has_its_advice(lab):
    """P10: no counter rises without a line in docs/operations.md that says what to do."""
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    text = (SOURCE / "docs/operations.md").read_text()
    same_names("counters", site.counters(), tables(text)["Counters"])


DTYPES = (("bf16", "BF16", 2, 20001), ("f16", "F16", 2, 5001), ("f32", "F32", 4, 3001), ("e4m3", "F8_E4M3", 1, 5001),
          ("e5m2", "F8_E5M2", 1, 5001), ("i64", "I64", 8, 501), ("f64", "F64", 8, 301), ("u8", "U8", 1, 3001), ("empty", "F32", 4, 0))
SHARDS = 8  # so that a form is chosen for some chunks of each dtype


def of_each_dtype(draws):
    """{dtype: values near one another, so that every codec finds something to save}"""
    return {name: [int(draws.gauss(0, 1) * 256) % (1 << 8 * size) for _ in range(count)] for name, _, size, count in DTYPES}


def stepped(draws, tensors, dense):
    """One in fifty is a little different, of bf16 each one where it is to be dense."""
    found = {}
    for name, _, size, count in DTYPES:
        values, every = list(tensors[name]), dense and name == "bf16"
        for i in range(count) if every else draws.sample(range(count), count // 50):
            values[i] = (values[i] + draws.choice((1, -1, 2, -2) if every else (1, 1, 1, -1, -1, 5, -300))) % (1 << 8 * size)
        found[name] = values
    return found


def packed(tensors):
    return {name: joined_of(tensors[name], size, b"") for name, _, size, _ in DTYPES}


def published(lab, site, number, shards):
    """One process gives each shard."""
    giving = []
    for i, tensors in enumerate(shards):
        header, at, folder = {}, 0, lab.dir / f"v{number}-{i}"
        for name, dtype, size, count in DTYPES:
            header[f"{i}.{name}"] = {"dtype": dtype, "shape": [count], "data_offsets": [at, at + size * count]}
            at += size * count
        words = json.dumps(header).encode()
        folder.mkdir()
        (folder / f"model-{i}.safetensors").write_bytes(len(words).to_bytes(8, "little") + words + b"".join(packed(tensors).values()))
        giving.append(lab.process(f"give{number}-{i}", [TOMBOLO, "publish", "policy", folder, "--version", str(number), "--run", "k", "--shard",
                                                        f"{i}/{len(shards)}", "--quiet", "--gateway", f"unix:{site.session_socket}"]))
    for process in giving:
        expect("exit code of publish", process.ended(), 0)


@scenario
def a_site_written_from_the_protocol_page_follows(lab):
    """P9: docs/protocol.md is enough for a second implementation: whole copies and steps of each
    dtype, in every form that gateways send, with every root and digest."""
    east, west, _ = lab.east_west(through_link=False, keep=3)
    east.peers["west"] = None
    draws, number, forms = random.Random(4), 0, set()
    shards = [of_each_dtype(draws) for _ in range(SHARDS)]
    for codec, steps in (("auto", (False, True, True, True)), ("zstd", ()), ("raw", ())):
        east.extra["link"] = {"codec": codec, "down_ms": 600000}  # it answers nothing while it decodes
        east.start()
        tls = tls_of(lab.pki_dir("east") / "ca.crt", west.trust / "gw.crt", west.trust / "gw.key")
        with SecondSite((east.address, east.port), tls, "west", "policy", "east") as site:
            for dense in (None, *steps):
                number += 1
                shards = shards if dense is None else [stepped(draws, tensors, dense) for tensors in shards]
                published(lab, east, number, shards)
                found = site.next_version(PATIENCE_S)
                while found.number < number:  # of the life before
                    found = site.next_version(PATIENCE_S)
                forms |= found.forms
                for memory, tensors in zip(found.memory, shards):
                    if not all(data in memory for data in packed(tensors).values()):
                        raise Failed(f"{codec}: version {number} is not what was published")
        expect("exit code of the gateway", east.daemon.terminate(), 0)
    expect("forms that came: codec, on a base", sorted(forms), [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1)])


if __name__ == "__main__":
    sys.exit(main())
