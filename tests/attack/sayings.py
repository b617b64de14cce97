"""Statements of a home, right ones and forged ones, written from docs/protocol.md."""

import hashlib
import os
import struct
import subprocess
import time

from hostile import span, text

RUN, VERSION, WITHDRAWN = 1, 2, 3


def now_ms():
    return int(time.time() * 1000)


class Key:
    """Of a version, as VERSION carries it."""

    def __init__(self, number, order=1, model="policy", uid=None, root=None, shards=1):
        self.number, self.order, self.model, self.shards = number, order, model, shards
        self.uid, self.root = uid or os.urandom(16), root or os.urandom(16)
        self.run = hashlib.sha256(b"run %d" % order).digest()[:16]

    def frame(self, state=1):
        return (self.uid + text(self.model) + self.run + struct.pack("<QQI", self.order, self.number, self.shards) + self.root +
                struct.pack("<QB", 100, state))

    def but(self, **other):
        changed = Key(self.number, self.order, self.model, self.uid, self.root, self.shards)
        changed.run = self.run
        for name, value in other.items():
            setattr(changed, name, value)
        return changed


def statement(kind, key, wall_ms=None):
    of_run, root = kind == RUN, hashlib.sha256(b"root").digest() if kind == VERSION else bytes(32)
    return (b"tombolo statement 1\0" + bytes([kind]) + text(key.model) + (bytes(16) if of_run else key.uid) + key.run +
            struct.pack("<QQ", key.order, 0 if of_run else key.number) + root + struct.pack("<Q", wall_ms or now_ms()) +
            struct.pack("<I", 0 if of_run else key.shards) + (bytes(16) if of_run else key.root))


def openssl(*words, data=None):
    return subprocess.run(["openssl", *map(str, words)], input=data, check=True, capture_output=True, timeout=60).stdout


def sealed(said, certificate, key, signature=None):
    """The payload of STATEMENT."""
    signature = openssl("dgst", "-sha256", "-sign", key, data=said) if signature is None else signature
    der = openssl("x509", "-in", certificate, "-outform", "DER")
    return span(b"".join(struct.pack("<H", len(part)) + part for part in (said, signature)) + b"\1" + struct.pack("<H", len(der)) + der)
