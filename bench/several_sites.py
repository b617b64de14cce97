"""More than two gateways over the emulated WAN: sites in a row, and sites of two gateways each."""

import contextlib
import itertools
import os

import harness
import lab as sites
from measuring import Skip, measurement
from over_wan import congestions_in_turns
from wan_wire import judged, wanlab

MIB = 1 << 20
TCP = "tcp: {rmem: 4096 131072 67108864, wmem: 4096 131072 67108864}\n"


class Judge:
    """Says of a lab of sim/wan what judged() wants to know."""

    def __init__(self, wan):
        self.wan = wan

    def verdict(self):
        since = self.wan.read_counters()["since"]
        return f"the emulator fell behind: {since['why']}" if since["void"] else None


def wan_of(bench, name, names, paths):
    scenario = bench.folder / f"{name}.yaml"
    scenario.write_text(f"sites: [{', '.join(names)}]\n{TCP}paths:\n" + "".join(
        f"  - {{between: [{a}, {b}], rate: {rate}, delay: {delay}, queue: 8MiB}}\n" for a, b, rate, delay in paths))
    return wan_lab(scenario)


@contextlib.contextmanager
def wan_lab(scenario):
    lab = wanlab()
    try:
        with lab.lab(scenario) as wan:
            yield wan
    except lab.LabError as error:
        raise Skip(str(error)) from error


def settle(site, wan, netns, path, protocol=2):
    # Those who are to hear nothing yet are stopped meanwhile, and no link is down because of that.
    site.extra = {"link": {**sites.LINK, "codec": "raw", "streams": 4, "protocol_max": protocol, "down_ms": 120000}, "session": {"lease_ms": 10000}}
    site.live_in(wan.enter(netns, []), wan.address(netns))
    site.models["policy"] = dict(home="east", keep=2)
    site.arena_mib = 4 * sites.mib_of(path) + 64


def follow(site, source, *more):
    site.subscribe.append(("policy", [source.name, *(s.name for s in more)]))


def dial(site, to):
    site.peers[to.name] = f"{to.address}:{to.port}"
    to.peers[site.name] = None


def crossed_s(worker, run, number, from_sites, to_sites):
    """Seconds from the begin of the first of these sites' crossings until all of them hold a version that is whole where it comes from."""
    begun = sites.Seen(to_sites[0].daemon, "crossing.begun", f"number={number} ")
    whole = [sites.Seen(s.daemon, "copy.whole", f"number={number} ") for s in to_sites]
    with contextlib.ExitStack() as still:
        for s in to_sites:
            still.enter_context(sites.stopped(s.daemon))
        uid = sites.publish(worker, run, number)["uid"]
        for s in from_sites:
            harness.wait_for(f"{s.name} holds it", lambda s=s: s.holds(uid), timeout_s=120)
    return max(w.at() for w in whole) - begun.at()


def in_a_row(lab, wan, path, names):
    """Sites, each behind the one before."""
    behind = [lab.site(name) for name in names]
    for s in behind:
        settle(s, wan, s.name, path, protocol=1)  # whole: the versions are equal
    for before, s in zip(behind, behind[1:]):
        dial(s, before)
        follow(s, before)
    for s in behind:
        s.start()
    for before, s in zip(behind, behind[1:]):
        s.wait_link(before.name)
    return behind


@measurement("link.relay")
def relay(bench):
    """East, west behind it, and north behind west; each hop as fast. The slowest hop is west's alone, where there is no north."""
    mib, rate_mbit, names = (16 if bench.quick else 48), 50, ("east", "west", "north")
    path = bench.weights(mib * MIB)
    hops = [(a, b, f"{rate_mbit}Mbit", "20ms") for a, b in zip(names, names[1:])]
    parcel_s = MIB * 8 / (rate_mbit * 1e6)
    with wan_of(bench, "row", names, hops) as wan:
        def crossed(count):
            with harness.Lab() as lab:
                behind = in_a_row(lab, wan, path, names[:count])
                worker, run = sites.rank(lab, behind[0], path)
                for number in (1, 2):  # the first, that connections and arenas are in use
                    seconds = crossed_s(worker, run, number, behind[:1], behind[1:])
                return seconds

        def once():
            return {"link.relay": (crossed(3) - 2 * parcel_s, crossed(2))}
        yield from judged(bench, Judge(wan), once)


def two_by_two(lab, wan, path, lanes):
    """[(east, west) of each lane]; gateways of a site are near each other."""
    names = [("east", "west"), ("east.1", "west.1")][:lanes]
    rows = []
    for names_of_lane in names:
        pair = tuple(lab.site(name, lanes=lanes) for name in names_of_lane)
        for s in pair:
            settle(s, wan, s.name.replace(".", ""), path)
        dial(pair[1], pair[0])
        rows.append(pair)
    for lane, (east, west) in enumerate(rows):
        others = [row for row in rows if row is not rows[lane]]
        follow(west, east, *(o[1] for o in others))
        if lane > 0:
            dial(east, rows[0][0])
            dial(west, rows[0][1])
            follow(east, rows[0][0])
    return rows


@measurement("link.lanes")
def lanes(bench):
    """The same version by two gateways a site and by one, each lane over a path of its own."""
    mib, rate = (24 if bench.quick else 96), "40Mbit"
    path = bench.weights(mib * MIB)
    size = path.stat().st_size
    near = [(f"{site}", f"{site}1", "1Gbit", "0.1ms") for site in ("east", "west")]
    far = [("east", "west", rate, "20ms"), ("east1", "west1", rate, "20ms")]

    with wan_of(bench, "lanes", ("east", "west", "east1", "west1"), far + near) as wan:
        def goodput(count):
            with harness.Lab() as lab:
                rows = two_by_two(lab, wan, path, count)
                for s in lab.sites:
                    s.start()
                for s in lab.sites:
                    for peer in s.peers:
                        s.wait_link(peer)
                worker, run = sites.rank(lab, rows[0][0], path)
                return size * 8 / 1e6 / crossed_s(worker, run, 1, [row[0] for row in rows], [row[1] for row in rows])

        def once():
            return {"link.lanes": (goodput(2), goodput(1))}
        yield from judged(bench, Judge(wan), once)


def behind_one_cable(lab, wan, path, congestion):
    """(a publisher's worker and run, home, the others): each takes all of it from home."""
    home, *others = (lab.site(name) for name in wan.names)
    for s in (home, *others):
        settle(s, wan, s.name, path, protocol=1)
        s.extra["link"]["congestion"] = congestion
        s.models["policy"]["read"] = [f"unix:{os.getuid()}", *(f"tombolo://{name}/*" for name in wan.names)]
    for s in others:
        dial(s, home)
        follow(s, home)
    for s in (home, *others):
        s.start()
    for s in others:
        s.wait_link(home.name)
    return sites.rank(lab, home, path), home, others


@measurement("link.congestion.shared-bottleneck", quick=False)
def shared_bottleneck(bench):
    """A site whose flows take more of the cable holds up the others: the last site counts."""
    path = bench.weights(64 * MIB)
    with wan_lab("shared-bottleneck") as wan, contextlib.ExitStack() as labs:
        ways = {way: behind_one_cable(labs.enter_context(harness.Lab()), wan, path, way) for way in ("auto", *bench.congestions())}
        numbers = itertools.count(1)

        def once(way):
            (worker, run), home, others = ways[way]
            return crossed_s(worker, run, next(numbers), [home], others)
        size = 3 * path.stat().st_size * 8 / 1e9
        yield from congestions_in_turns(bench, Judge(wan), "link.congestion.shared-bottleneck", size, once)
