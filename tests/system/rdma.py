"""Bytes between hosts: by tcp, and with TB_TEST_RDMA=1, in the VM lab, by verbs; the
device's own counters say so."""

import contextlib
import os
import pathlib

from harness import Failed

RDMA = os.environ.get("TB_TEST_RDMA") == "1"
NETWORK = "verbs" if RDMA else "tcp"
PACKET_BYTES = 1024 # the most that one carries over Ethernet's 1500


def paced(bytes_per_s):
    """A paced hop goes by tcp; RDMA is slow enough where it is emulated."""
    return 0 if RDMA else bytes_per_s


def packets():
    return sum(int(counter.read_text()) for counter in pathlib.Path("/sys/class/infiniband").glob("*/ports/*/hw_counters/rcvd_pkts"))


@contextlib.contextmanager
def over_the_network(size):
    """So many bytes at least go by RDMA, where there is RDMA."""
    before = packets()
    yield
    moved = (packets() - before) * PACKET_BYTES
    if RDMA and moved < size:
        raise Failed(f"the device received {moved} bytes of {size}")
