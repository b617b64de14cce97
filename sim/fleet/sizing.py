"""sizing: what a gateway needs for one model. sim/fleet/plan and the table of docs/two-sites.md share it."""

GIB = 1 << 30
ARENA_SHARE = 1.01  # digests, bitmaps and what chunks are rounded up to, beside the bytes: docs/config.md, arena.bytes
# Core-seconds a GiB of the version that a gateway spends on a step that crosses as deltas, and on a
# full copy, by docs/benchmarks.md: five steps of 2 GiB cost home 0.8; link.cpu is of two gateways.
STEP_CORE_S_PER_GIB = 0.4
FULL_CORE_S_PER_GIB = 1.0


def arena_bytes(version_bytes, keep):
    """`arena.bytes` of the configuration: `keep` versions, and one that comes."""
    return (keep + 1) * version_bytes * ARENA_SHARE


def link_bits_per_s(version_bytes, share, step_s):
    """The rate that a link has to carry so that a version is there before the next one is published."""
    return version_bytes * share * 8 / step_s


def gateway_cores(version_bytes, share, step_s):
    """Cores that a gateway keeps busy with steps; a share of 1 is a full copy each time."""
    each = FULL_CORE_S_PER_GIB if share >= 1 else STEP_CORE_S_PER_GIB
    return version_bytes / GIB * each / step_s
