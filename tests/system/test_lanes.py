"""Several gateways a site: lanes that carry one version together (P5, P6, P8).

Covers: wan/link/traffic/link_share.c wan/send/source_division.c
"""

import sys

from harness import PATIENCE_S, Failed, Trainer, expect, main, read_and_compare, scenario, wait_for


CHUNK_AT_MOST = 1 << 20  # of a version of these tests, with its frame


def two_by_two(lab, rate=None):
    """East is home, west follows; each has two gateways, which know each other. Between the
    sites each lane has a path of its own."""
    east, west = lab.site("east", lanes=2), lab.site("west", lanes=2)
    east1, west1 = lab.site("east.1", lanes=2), lab.site("west.1", lanes=2)
    for s in (east, west, east1, west1):
        s.models["policy"] = dict(home="east")
        s.extra["link"] = {"codec": "raw"}  # bytes are counted, and `auto` codes a busy machine's chunks in another way
    east1.peers["east"] = f"{lab.address}:{east.port}"
    west1.peers["west"] = f"{lab.address}:{west.port}"
    east.peers.update({"east.1": None, "west": None})
    east1.peers["west.1"] = None
    west.peers["west.1"] = None
    paths = lab.link(east), lab.link(east1)
    west.peers["east"] = f"127.0.0.1:{paths[0].port}"
    west1.peers["east.1"] = f"127.0.0.1:{paths[1].port}"
    east1.subscribe.append(("policy", ["east"]))
    west.subscribe.append(("policy", ["east", "west.1"]))
    west1.subscribe.append(("policy", ["east.1", "west"]))
    if rate:
        east.peer_keys["west"] = east1.peer_keys["west.1"] = {"rate": rate}
    return (east, east1), (west, west1), paths


def start(*sites):
    for s in sites:
        s.start()
    for s in sites:
        for peer in s.peers:
            s.wait_link(peer)


@scenario
def two_lanes_carry_one_version(lab):
    """P5: half of a version comes by each lane's path, and nothing by both but what a lane asked for
    again, and counted, because the other was late. Workers of lane 0 read all of it."""
    # A late lane is helped, so paths are slower where the build is.
    easts, wests, paths = two_by_two(lab, rate=f"{2400 / PATIENCE_S:.0f}Mbit")
    start(*easts, *wests)
    path = lab.weights(1)[0]
    uid = Trainer(lab, easts[0], path).publish(1)
    for s in wests:
        s.wait_holds(uid)
    size = wests[0].version(uid)["bytes"]
    for lane in 0, 1:
        sent = easts[lane].link(wests[lane].name)
        again = wests[lane].link(easts[lane].name)["again_bytes"] + sent["hedged_bytes"]
        crossed, share = sent["sent_bytes"], size / 2 + CHUNK_AT_MOST
        print(f"lane {lane}: {crossed} bytes crossed of {size}, {again} of them again", flush=True)
        if crossed - again > share or paths[lane].back_bytes < crossed:
            raise Failed(f"lane {lane}: {crossed} bytes crossed, {again} of them again; its share are {share}")
    read_and_compare(lab, wests[0], uid, path)
    if "east.1" not in easts[0].cli("status").stdout:
        raise Failed("status does not name the other lane")


@scenario
def a_lane_that_is_lost_costs_its_own_progress(lab):
    """P5 P6: in mid-version west's second gateway is killed: the first draws what is lacking by
    its own path, and nothing that it held again. It comes back with what it had, and is whole
    too."""
    easts, wests, paths = two_by_two(lab, rate="24Mbit")
    start(*easts, *wests)
    path = lab.weights(1)[0]
    uid = Trainer(lab, easts[0], path).publish(1)
    wests[0].wait_held_some(uid, 0.3)
    wests[1].kill()
    held = wests[0].version(uid)["held_bytes"]
    wests[0].wait_holds(uid)
    v = wests[0].version(uid)
    print(f"{held} of {v['bytes']} were held; {v['wire_bytes']} came, {paths[0].back_bytes} by the first path", flush=True)
    if v["wire_bytes"] > v["bytes"] + (4 << 20):
        raise Failed(f"{v['wire_bytes']} bytes came for a version of {v['bytes']}")
    read_and_compare(lab, wests[0], uid, path)
    wests[1].start()
    wests[1].wait_holds(uid)
    easts[1].kill()  # at home: the version that follows crosses by the first lane alone
    later = Trainer(lab, easts[0], path, key="run-b").publish(2)
    wests[0].wait_holds(later)
    wests[1].wait_holds(later)
    for s in wests:
        expect(f"lost at {s.name}", s.counters()["versions_lost"], 0)


@scenario
def a_gateway_is_known_by_its_lane(lab):
    """P8 P10: a gateway of one's own site needs no right to read; one that says another lane
    than its certificate's is refused."""
    easts, wests, _ = two_by_two(lab)
    easts[0].models["policy"]["read"] = []
    easts[1].models["policy"]["read"] = ["tombolo://west/*"]
    wests[1].models["policy"]["read"] = []
    start(*easts, *wests)
    uid = Trainer(lab, easts[0], lab.weights(1)[0]).publish(1)
    for s in (easts[1], *wests):
        s.wait_holds(uid)
    wests[1].kill()
    other = lab.site("west.2", lanes=3)
    other.gateway = "gw1"
    other.models["policy"] = dict(home="east")
    other.peers["west"] = f"{lab.address}:{wests[0].port}"
    other.start()
    wait_for("it is refused", lambda: wests[0].daemon.logged("link.refused", "by=us", "status=peer_garbled"))


if __name__ == "__main__":
    sys.exit(main())
