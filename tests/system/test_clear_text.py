#!/usr/bin/env python3
"""No plaintext leaves a site: looked for on the devices between two network namespaces. The traffic through the harness's relays in all
other tests is looked at there, as it passes.

Covers: base/net/tls_session.c
"""

import sys

from capture import Capture
from harness import SOURCE, Failed, Skipped, Worker, expect, main, safetensors_table, scenario, up

sys.path.insert(0, str(SOURCE / "sim/wan"))
import wanlab

MARKER = b"TOMBOLO-MARKER-IN-THE-CLEAR!"
BLOCKS = 2048  # of 4 KiB, each with a marker
TAKE = """
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print("up", flush=True)
s = listener.accept()[0]
while s.recv(1 << 16):
    pass
"""
GIVE = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as s:
    s.sendall(open(sys.argv[2], "rb").read())
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
"""


def marked(lab):
    """A file of safetensors: one opaque tensor."""
    body = (MARKER + bytes(4096 - len(MARKER))) * BLOCKS
    path = lab.dir / "marked.safetensors"
    header = b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(body), len(body))
    path.write_bytes(len(header).to_bytes(8, "little") + header + body)
    return path


def cross_a_plain_socket(lab, wan, path):
    taker = lab.process("taker", wan.enter("west", [sys.executable, "-c", TAKE, wan.address("west")]))
    expect("the taker", taker.popen.stdout.readline(), b"up\n")
    giver = lab.process("giver", wan.enter("east", [sys.executable, "-c", GIVE, wan.address("west"), path]))
    expect("end of the giver", giver.ended(), 0)
    expect("end of the taker", taker.ended(), 0)


def cross_the_link(lab, wan, path):
    east, west, _ = lab.east_west(through_link=False)
    for site in (east, west):
        site.prefix = site.worker_prefix = wan.enter(site.name, [])
        site.address = wan.address(site.name)
        site.extra["link"] = {"codec": "raw"}
    west.peers["east"] = f"{east.address}:{east.port}"
    up(east, west)
    rank = Worker(lab, "rank", east)
    rank.ok("register", tensors=safetensors_table(path), file=str(path))
    run = rank.ok("run", model="policy", key="k")["run"]
    west.wait_holds(rank.ok("publish", model="policy", run=run, number=1)["uid"])
    expect("what went wrong with their end", lab.end_well(), [])


@scenario
def no_clear_text_between_sites(lab):
    """P8: none of the markers that stand in every 4 KiB of a tensor is on the device of a site,
    though they cross unencoded, and every packet there belongs to a TLS connection; a control
    run over a plain socket finds them all."""
    reason = wanlab.why_not()
    if reason:
        raise Skipped(reason)
    path = marked(lab)
    with wanlab.lab("metro") as wan:
        with Capture(wan, "east") as control:
            cross_a_plain_socket(lab, wan, path)
        with Capture(wan, "east") as seen:
            cross_the_link(lab, wan, path)
    expect("markers over a plain socket", control.find(MARKER), BLOCKS)
    if not control.complaints():
        raise Failed("a plain socket was taken for TLS")
    if sum(len(s.whole()) for s in seen.streams) < path.stat().st_size:
        raise Failed("the version did not cross this device")
    expect("markers on the link", seen.find(MARKER), 0)
    expect("what is no TLS", seen.complaints(), [])


if __name__ == "__main__":
    sys.exit(main())
