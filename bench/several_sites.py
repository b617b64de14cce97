"""More than two gateways over the emulated WAN: sites in a row, and sites of two gateways each."""

import contextlib
import itertools

import harness
import lab as sites
from measuring import Skip, measurement
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


@contextlib.contextmanager
def wan_of(bench, name, names, paths):
    scenario = bench.folder / f"{name}.yaml"
    scenario.write_text(f"sites: [{', '.join(names)}]\n{TCP}paths:\n" + "".join(
        f"  - {{between: [{a}, {b}], rate: {rate}, delay: {delay}, queue: 8MiB}}\n" for a, b, rate, delay in paths))
    lab = wanlab()
    try:
        with lab.lab(scenario) as wan:
            yield wan
    except lab.LabError as error:
        raise Skip(str(error)) from error


def settle(site, wan, netns, mib, protocol=2):
    site.extra = {"link": {**sites.LINK, "codec": "raw", "streams": 4, "protocol_max": protocol}, "session": {"lease_ms": 10000}}
    site.live_in(wan.enter(netns, []), wan.address(netns))
    site.models["policy"] = dict(home="east", keep=2)
    site.arena_mib = 4 * mib + 64


def follow(site, source, *more):
    site.subscribe.append(("policy", [source.name, *(s.name for s in more)]))


def dial(site, to):
    site.peers[to.name] = f"{to.address}:{to.port}"
    to.peers[site.name] = None


def whole_at(sites_of, number):
    return [sites.logged_at(s.daemon, "copy.whole", f"number={number} ") for s in sites_of]


@measurement("link.relay")
def relay(bench):
    """East, west behind it, and north behind west; each hop as fast. The slowest hop is west's alone, of the version before."""
    mib, rate_mbit = (32 if bench.quick else 128), 200
    path = bench.weights(mib * MIB)
    hops = [("east", "west", f"{rate_mbit}Mbit", "20ms"), ("west", "north", f"{rate_mbit}Mbit", "20ms")]
    with wan_of(bench, "row", ("east", "west", "north"), hops) as wan, harness.Lab() as lab:
        east, west, north = (lab.site(name) for name in ("east", "west", "north"))
        for s in (east, west, north):
            settle(s, wan, s.name, mib, protocol=1)  # whole: the versions are equal
        dial(west, east)
        dial(north, west)
        follow(west, east)
        follow(north, west)
        for s in (east, west, north):
            s.start()
        for s in (west, north):
            s.wait_link("east" if s is west else "west")
        worker, run = sites.rank(lab, east, path)
        numbers = itertools.count(1)
        parcel_s = MIB * 8 / (rate_mbit * 1e6)

        def cross(last):
            number = next(numbers)
            with sites.stopped(west.daemon):
                uid = sites.publish(worker, run, number)["uid"]
                harness.wait_for("east holds it", lambda: east.holds(uid), timeout_s=120)
            begun = sites.logged_at(west.daemon, "crossing.begun", f"number={number} ")
            return max(whole_at([last], number)) - begun
        cross(north)

        def once():
            with sites.stopped(north.daemon):
                alone = cross(west)
            harness.wait_for("north has caught up", lambda: north.versions() and north.versions()[-1]["held_bytes"] == north.versions()[-1]["bytes"],
                             timeout_s=120)
            north.wait_link("west")
            return {"link.relay": (cross(north) - 2 * parcel_s, alone)}
        yield from judged(bench, Judge(wan), once)


def two_by_two(lab, wan, mib, lanes):
    """[(east, west) of each lane]; gateways of a site are near each other."""
    names = [("east", "west"), ("east.1", "west.1")][:lanes]
    rows = []
    for names_of_lane in names:
        pair = tuple(lab.site(name, lanes=lanes) for name in names_of_lane)
        for s in pair:
            settle(s, wan, s.name.replace(".", ""), mib)
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
    mib, rate = (48 if bench.quick else 128), "100Mbit"
    path = bench.weights(mib * MIB)
    size = path.stat().st_size
    near = [(f"{site}", f"{site}1", "1Gbit", "0.1ms") for site in ("east", "west")]
    far = [("east", "west", rate, "20ms"), ("east1", "west1", rate, "20ms")]

    with wan_of(bench, "lanes", ("east", "west", "east1", "west1"), far + near) as wan:
        def goodput(count):
            with harness.Lab() as lab:
                rows = two_by_two(lab, wan, mib, count)
                for s in lab.sites:
                    s.start()
                for s in lab.sites:
                    for peer in s.peers:
                        s.wait_link(peer)
                worker, run = sites.rank(lab, rows[0][0], path)
                wests = [row[1] for row in rows]
                with contextlib.ExitStack() as still:
                    for s in wests:
                        still.enter_context(sites.stopped(s.daemon))
                    uid = sites.publish(worker, run, 1)["uid"]
                    for row in rows:
                        harness.wait_for(f"{row[0].name} holds it", lambda s=row[0]: s.holds(uid), timeout_s=120)
                begun = sites.logged_at(wests[0].daemon, "crossing.begun", "number=1 ")
                return size * 8 / 1e6 / (max(whole_at(wests, 1)) - begun)

        def once():
            return {"link.lanes": (goodput(2), goodput(1))}
        yield from judged(bench, Judge(wan), once)
