"""A right frame, broken in one way."""

import struct

from hostile import frame

EXTREMES = (0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 2**63 - 1, 2**63, 2**64 - 1)


def broken(chance, kind, payload):
    """One frame, and in what way it is broken."""
    data, way = bytearray(payload), chance.randrange(8)
    if way == 0 and data:
        del data[chance.randrange(len(data)):]
    elif way == 1:
        data += chance.randbytes(chance.randrange(1, 64))
    elif way == 2 and data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif way == 3 and len(data) >= 8:
        width = chance.choice((1, 2, 4, 8))
        at = chance.randrange(len(data) - width + 1)
        data[at:at + width] = (chance.choice(EXTREMES) & (1 << 8 * width) - 1).to_bytes(width, "little")
    elif way == 4:
        data = bytearray(chance.randbytes(chance.randrange(200)))
    elif way == 5:
        kind = chance.randrange(2**16)
    elif way == 6:
        return struct.pack("<IHHQ", chance.choice(EXTREMES) & 0xffffffff, kind, 0, 0) + bytes(data)
    header = {"request": chance.choice((0, 1, 2, 2**64 - 1)), "zero": chance.choice((0, 0, 0, 1))} if way == 7 else {}
    return frame(kind, bytes(data), **header)
