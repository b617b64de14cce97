"""Other bytes with the same XXH3-128, as one makes them who knows how XXH3 works (seed 0).

Of each lane of 1024 bytes XXH3 adds the 16 words, and the products of each word's halves behind its secret. Twelve words are the attacker's, and
four make both sums right. The end of a chunk is digested in another way and stays."""

import struct

BLOCK, STRIPES, LANES, FREE = 1024, 16, 8, 12
LOW, ALL = 2**32 - 1, 2**64 - 1
SECRET = (
    0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072, 0x78E5C0CC4EE679CB, 0x2172FFCC7DD05A82, 0x8E2443F7744608B8,
    0x4C263A81E69035E0, 0xCB00C391BB52283C, 0xA32E531B8B65D088, 0x4EF90DA297486471, 0xD8ACDEA946EF1938, 0x3F349CE33F76FAA8, 0x1D4F0BC7C7BBDCF9,
    0x3159B4CD4BE0518A, 0x647378D9C97E9FC8, 0xC3EBD33483ACC5EA, 0xEB6313FAFFA081C5, 0x49DAF0B751DD0D17, 0x9E68D429265516D3, 0xFCA1477D58BE162B,
    0xCE31D07AD1B8F88F, 0x280416958F3ACB45, 0x7E404BBBCAFBD7AF)  # fmt: skip


def product(key):
    return (key & LOW) * (key >> 32)


def forged_lane(words, secret, fill):
    total = sum(words) & ALL
    products = sum(product(w ^ s) for w, s in zip(words, secret)) & ALL
    mine = [fill] * FREE
    products = (products - sum(product(fill ^ s) for s in secret[:FREE])) & ALL
    x = products >> 32
    x += (products & LOW) + x > LOW
    y = (products + x) & LOW
    mine += [secret[FREE] ^ (x << 32 | LOW), secret[FREE + 1] ^ (y << 32 | 1)]
    left = (total - sum(mine)) & ALL
    last = (secret[FREE + 3] & ~LOW) | ((left - secret[FREE + 2]) & LOW)
    mine += [((left - last) & ~LOW & ALL) | (secret[FREE + 2] & LOW), last]
    return mine


def forged_block(block, fill):
    words = struct.unpack(f"<{STRIPES * LANES}Q", block)
    mine = [0] * len(words)
    for lane in range(LANES):
        mine[lane::LANES] = forged_lane(words[lane::LANES], SECRET[lane:lane + STRIPES], fill)
    return struct.pack(f"<{len(mine)}Q", *mine)


def forged(data, fill=0x3F803F803F803F80):
    """Three quarters of it are `fill`, but for its end."""
    made = bytearray(data)
    for at in range(0, len(data) - BLOCK - 64 + 1, BLOCK):
        made[at:at + BLOCK] = forged_block(data[at:at + BLOCK], fill)
    return bytes(made)
