"""Tensors of every dtype, as files and from memory: what a reader gets is what was published,
whether this release knows the dtype or not.

Covers: wan/link/traffic/link_dtypes.c gateway/disk/safetensors.c python/tombolo/memory.py
"""

import filecmp
import json
import os
import random
import sys

from bundles import result
from harness import BUILD, PATIENCE, SOURCE, expect, main, scenario, up, wait_for

sys.path.insert(0, str(SOURCE / "python"))
os.environ.setdefault("TOMBOLO_LIBRARY", str(BUILD / "intra/client/libtombolo.so"))

BITS = {"U8": 8, "I8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6,
        "F4": 4, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64}
# Not known to this release, and of sizes that no bits explain: in a file data_offsets say how many
# bytes they have.
UNKNOWN = {"MXFP4_16": ([3, 11], 19), "U128": ([2], 32), "new.dtype-1": ([], 5)}


def tensors(seed):
    """{name: (dtype, shape, bytes)}: of each dtype a tensor that takes several chunks, a few odd
    elements, one, and none."""
    rng = random.Random(seed)
    table = {}
    for dtype, bits in BITS.items():
        for name, shape in {"large": [4501, 257 * 8 // bits + 1], "odd": [3, 5, 7], "one": [], "none": [0, 4]}.items():
            count = (shape[0] if shape else 1) * (shape[1] if len(shape) > 1 else 1) * (shape[2] if len(shape) > 2 else 1)
            table[f"{dtype}.{name}"] = (dtype, shape, rng.randbytes((count * bits + 7) // 8))
    table.update({f"{dtype}.opaque": (dtype, shape, rng.randbytes(count)) for dtype, (shape, count) in UNKNOWN.items()})
    return table


def stepped(table, seed):
    """One byte in a hundred is another."""
    rng = random.Random(seed)
    after = {}
    for name, (dtype, shape, data) in table.items():
        changed = bytearray(data)
        for _ in range(len(data) // 100 + (len(data) > 0)):
            changed[rng.randrange(len(data))] ^= 1
        after[name] = (dtype, shape, bytes(changed))
    return after


def write(path, table):
    header, at = {}, 0
    for name, (dtype, shape, data) in table.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in table.values()))
    return path


def subscribe(site, model, into, number):
    out = site.cli("subscribe", model, "--into", into, "--version", number, "--json", "--timeout", PATIENCE).stdout
    return result(out)["folder"]


@scenario
def files_of_each_dtype_cross(lab):
    """P1: whole, and then as a step on the version before: byte-identical files."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    table = tensors(1)
    for number in (1, 2):
        source = write(lab.dir / "model.safetensors", table)
        east.cli("publish", "policy", source, "--version", number)
        folder = subscribe(west, "policy", lab.dir / "into", number)
        expect(f"version {number} is byte-identical", filecmp.cmp(source, f"{folder}/model.safetensors", shallow=False), True)
        table = stepped(table, number)
    link = east.control("status")["links"][0]
    expect("chunks went as steps", link["delta_chunks"] > 0, True)
    expect("refused", link["dtypes_refused"], 0)


@scenario
def a_peer_of_an_older_protocol_is_refused_them(lab):
    """P9: by name, at both ends; the other model of the link goes on."""
    for protocol in (1, 2):
        east, west = lab.site(f"east{protocol}"), lab.site(f"west{protocol}")
        for model in ("new", "plain"):
            for site in (east, west):
                site.models[model] = dict(home=east.name, publish=["unix:*"], read=["unix:*", f"tombolo://{west.name}/*"])
            west.subscribe.append((model, [east.name]))
        west.peers[east.name] = f"{lab.address}:{east.port}"
        east.peers[west.name] = None
        west.listen = False
        west.arguments = ["--protocol-max", str(protocol)]
        up(east, west)
        east.cli("publish", "new", write(lab.dir / f"new{protocol}.safetensors", {"w": ("F4", [5], b"123")}), "--version", 1)
        wait_for("west hears why", lambda w=west: w.daemon.logged("crossing.failed", "model=new", "status=peer_protocol"))
        told = east.daemon.logged("link.dtypes_refused")
        expect("lines at east", len(told), 1)
        for words in (f"peer={west.name}", "model=new", "number=1", "tensor=w", "dtype=F4", f"protocol={protocol}", "needs_protocol=3"):
            expect(f"{words} in {told[0]}", words in told[0], True)
        expect("counted", east.control("status")["links"][0]["dtypes_refused"], 1)
        plain = write(lab.dir / f"plain{protocol}.safetensors", {"w": ("BF16", [3], b"123456")})
        east.cli("publish", "plain", plain, "--version", 1)
        folder = subscribe(west, "plain", lab.dir / f"into{protocol}", 1)
        expect("the other model", filecmp.cmp(plain, f"{folder}/{plain.name}", shallow=False), True)
        expect("sessions", west.control("status")["links"][0]["sessions"], 1)


@scenario
def dtypes_cross_from_memory_to_memory(lab):
    """P1: tb_register takes a dtype by name, and one that is not known by name and bits;
    versions are copied, patched and listed."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    table = {name: row for name, row in tensors(5).items() if not name.endswith("opaque")}
    table["new"] = ("NEW:3", [5, 7], bytes(range(14)))
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, host="a") as trainer, tombolo.Session(gateway, host="b") as rollout:
        run = trainer.run_open("policy", "key")
        held = {name: bytearray(data) for name, (_, _, data) in table.items()}
        out = {name: bytearray(len(data)) for name, (_, _, data) in table.items()}
        sealed = trainer.register({name: (dtype, shape, held[name]) for name, (dtype, shape, _) in table.items()})
        into = rollout.register({name: (dtype, shape, out[name]) for name, (dtype, shape, _) in table.items()})
        reader = rollout.subscribe("policy", registration=into, update=tombolo.PATCH)
        for number in (1, 2, 3):
            uid = trainer.publish("policy", run, number, registration=sealed).uid
            reader.stage(uid)
            if number == 1:
                items = {item.name: item for item in reader.items(uid)}
                for name, (dtype, shape, data) in table.items():
                    item = items[name]
                    expect(f"{name}, listed", (item.dtype, item.dtype_bits, item.shape),
                           (dtype.split(":")[0], 3 if name == "new" else BITS[dtype], tuple(shape)))
                    expect(f"bytes of {name}, listed", bytes(item.bytes), data)
                del items, item
            info = reader.activate(uid)
            expect("the same bytes", out, held)
            expect(f"fetched again in version {number}", info.fetched_chunks, 0)
            reader.release(uid)
            for name, (_, _, data) in stepped({n: (None, None, bytes(b)) for n, b in held.items()}, number).items():
                held[name][:] = data
        expect("written as a patch", info.patched_bytes > 0, True)
        for wrong in ("F5", "bf16", "F4:8", "X:0"):
            try:
                trainer.register({"w": (wrong, [8], bytearray(8 if wrong in ("bf16", "F4:8") else 0))})
            except (tombolo.Error, ValueError) as error:
                expect(f"{wrong}: {error}", "NAME:BITS" in str(error), True)
            else:
                expect(f"dtype {wrong}", "taken", "refused")
        expect("names of others' dtypes", [tombolo.dtype_name(d) for d in ("torch.float8_e8m0fnu", "bfloat16", "F4")], ["F8_E8M0", "BF16", "F4"])


if __name__ == "__main__":
    sys.exit(main())
