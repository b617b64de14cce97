"""Other bytes with the XXH3-128 of right ones, written from the published description of XXH3.

XXH3 walks over blocks of 16 stripes of 8 words. In a block, lane i adds to itself the product of the halves of
(word ^ key), and to its neighbour the word. Both sums of a lane are kept when 5 of its 16 words are chosen for
that. The other 11 are the attacker's: 68 % of a chunk, at some MiB a second.
"""

import struct

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
STRIPES, LANES, BLOCK = 16, 8, 1024
LOW, ALL = 2**32 - 1, 2**64 - 1
FREE = STRIPES - 5


def _key(stripe, lane):
    return struct.unpack_from("<Q", SECRET, 8 * stripe + 8 * lane)[0]


KEYS = [[_key(stripe, lane) for stripe in range(STRIPES)] for lane in range(LANES)]


def _product(word, key):
    return ((word ^ key) & LOW) * ((word ^ key) >> 32)


def _lane(words, keys, wanted):
    """Words with the sum and the products of these, the first FREE of them as wanted."""
    total = sum(words) & ALL
    left = sum(map(_product, words, keys)) & ALL
    made = list(wanted[:FREE])
    left = (left - sum(map(_product, made, keys))) & ALL
    many, few = left >> 31, left & (2**31 - 1)
    first = min(many, LOW)
    for low, high in ((1, few), (2**31, first), (2**31, many - first)):
        made.append(keys[len(made)] ^ (high << 32 | low))
    rest = (total - sum(made)) & ALL  # two words without a product: one has no upper half, one no lower
    one, two = keys[STRIPES - 2], keys[STRIPES - 1]
    lower = (rest - (two & LOW)) & LOW
    word = (one & ~LOW & ALL) | lower
    made.append(word)
    made.append((rest - word) & ALL)
    return made


def forged(right, payload):
    """`right` with as much of `payload` as fits in its whole blocks but the last, and its XXH3-128."""
    blocks = (len(right) - 1) // BLOCK
    made = bytearray(right)
    for block in range(blocks):
        words = struct.unpack_from("<128Q", right, block * BLOCK)
        wanted = struct.unpack("<128Q", payload[:BLOCK].ljust(BLOCK, b"\0"))
        out = [0] * 128
        for lane in range(LANES):
            out[lane::LANES] = _lane(words[lane::LANES], KEYS[lane], wanted[lane::LANES])
        struct.pack_into("<128Q", made, block * BLOCK, *out)
    return bytes(made)
