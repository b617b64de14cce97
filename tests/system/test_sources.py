"""One version from several sites at once (P5, P6).

Covers: wan/send/source_division.c wan/link/traffic/link_share.c
"""

import sys

from harness import Failed, Trainer, expect, main, read_and_compare, scenario, wait_for


def three(lab):
    """East is home; west and north follow it and each other. Links from west to east, north to
    east, north to west."""
    east, west, _ = lab.east_west(through_link=False)
    north = lab.site("north")
    north.models["policy"] = dict(home="east")
    west.listen = True
    west.peers["north"] = east.peers["north"] = None
    west.subscribe[0] = ("policy", ["east", "north"])
    north.subscribe.append(("policy", ["east", "west"]))
    return east, west, north


@scenario
def two_sources_share_a_version(lab):
    """P5: north draws from east and west at once; both give a part of it, and nearly nothing
    comes twice."""
    east, west, north = three(lab)
    east.extra["link"] = west.extra["link"] = {"codec": "raw"}  # bytes are counted
    to_east, to_west = lab.link(east), lab.link(west)
    north.peers.update(east=f"127.0.0.1:{to_east.port}", west=f"127.0.0.1:{to_west.port}")
    for site in (east, west):
        site.start()
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    to_east.bytes_per_s = to_west.bytes_per_s = 16 << 10  # until both are there
    north.start()
    for site in ("east", "west"):
        north.wait_link(site)
    to_east.bytes_per_s = to_west.bytes_per_s = 1 << 20
    north.wait_holds(uid)
    v = north.version(uid)
    print(f"{v['bytes']} bytes: {to_east.back_bytes} from east, {to_west.back_bytes} from west, {v['wire_bytes']} in all", flush=True)
    for name, link in (("east", to_east), ("west", to_west)):
        if link.back_bytes < v["bytes"] // 10:
            raise Failed(f"{name} gave {link.back_bytes} of {v['bytes']} bytes")
    if v["wire_bytes"] > v["bytes"] * 1.2:
        raise Failed(f"{v['wire_bytes']} bytes came for a version of {v['bytes']}")
    read_and_compare(lab, north, uid, path)


@scenario
def sites_complete_each_other_without_home(lab):
    """P6: home is cut off when neither west nor north has all of a version; what one of them has
    the other gets."""
    east, west, north = three(lab)
    west_home, north_home = lab.link(east), lab.link(east)
    west.peers["east"] = f"127.0.0.1:{west_home.port}"
    north.peers.update(east=f"127.0.0.1:{north_home.port}", west=f"{lab.address}:{west.port}")
    for site in (east, west, north):
        site.start()
    north.wait_link("west")
    west_home.bytes_per_s = north_home.bytes_per_s = 1 << 20
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)

    def held(site):
        return (site.version(uid) or {"held_bytes": 0})["held_bytes"]
    wait_for("both have some", lambda: held(west) > 0 and held(north) > 0)
    west.wait_held_some(uid, 0.4)
    for link in (west_home, north_home):
        link.refusing = True
        link.cut()
    for site in (west, north):
        site.wait_link("east", "dialling")
    before = max(held(west), held(north))
    wait_for("both have the same", lambda: held(west) == held(north) >= before)
    print(f"without home: {held(west)} of {west.version(uid)['bytes']} at both", flush=True)
    for link in (west_home, north_home):
        link.refusing = False
        link.bytes_per_s = 0
    west.wait_holds(uid)
    north.wait_holds(uid)
    expect("lost", west.counters()["versions_lost"] + north.counters()["versions_lost"], 0)
    read_and_compare(lab, north, uid, path)
    print(f"{west_home.back_bytes + north_home.back_bytes} bytes came from home for two sites", flush=True)


if __name__ == "__main__":
    sys.exit(main())
