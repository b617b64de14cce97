"""The versions that cross, in which order and how much of them: policies, weights, rates, a day's bytes (P3,
P6, P7, P10).

Covers: gateway/daemon/crossing_policy.c gateway/daemon/links/peer_limits.c wan/send/rate_cap.c
Covers: wan/send/feed_rate_cap.c wan/send/feed_day_budget.c wan/send/fair_queue.c
Covers: wan/link/traffic/link_day_budget.c
"""

import re
import subprocess
import sys
import time

from harness import CRAWL, Cores, Failed, Skipped, Trainer, Veth, WallClock, Worker, expect, made, main, safetensors_table, scenario, up, wait_for
from lagging import causes, says


def limit_of(site, peer):
    return site.link(peer)["limit"]


def published_behind_a_closed_link(lab, policy, count, bytes_per_s=0, **extra):
    """East has `count` versions before west, which follows by `policy`, may come. Their uids."""
    east, west, link = lab.east_west(keep=count + 1)
    west.models["policy"]["policy"] = policy
    west.extra.update(extra)
    link.bytes_per_s = bytes_per_s
    link.refusing = True
    for s in (east, west):
        s.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uids = [trainer.publish(n + 1) for n in range(count)]
    link.refusing = False
    return west, link, uids


@scenario
def latest_skips_what_is_older(lab):
    """The newest of three crosses; the other two never begin."""
    west, _, uids = published_behind_a_closed_link(lab, "latest", 3)
    west.wait_holds(uids[2])
    for uid in uids[:2]:
        expect("bytes of an older one", (west.version(uid) or {"held_bytes": 0})["held_bytes"], 0)


@scenario
def every_skips_none(lab):
    """All three cross, and in order."""
    west, _, uids = published_behind_a_closed_link(lab, "every", 3)
    for uid in uids:
        west.wait_holds(uid)
    wait_for("each is told", lambda: len(west.daemon.logged("copy.whole")) == 3)
    whole = [line.split("number=")[1].split()[0] for line in west.daemon.logged("copy.whole")]
    expect("order", whole, ["1", "2", "3"])


@scenario
def chunks_that_take_longer_than_a_lease_do_not_stand(lab):
    """P6: on a slow path all streams are in the middle of a chunk for three lease times. Bytes
    come, so the next version waits its turn."""
    lease_s = 4
    west, link, uids = published_behind_a_closed_link(lab, "every", 2, bytes_per_s=16 << 10, session={"lease_ms": lease_s * 1000})
    wait_for("the first begins", lambda: west.daemon.logged("crossing.begun", "number=1 "))
    begun = time.monotonic()
    wait_for("three lease times", lambda: time.monotonic() > begun + 3 * lease_s)
    expect("bytes of chunks", west.version(uids[0])["held_bytes"], 0)
    expect("begun beside it", west.daemon.logged("crossing.begun", "number=2 "), [])
    expect("streams lost", [site.daemon.logged("stream.lost") for site in lab.sites], [[], []])
    link.bytes_per_s = 0
    for uid in uids:
        west.wait_holds(uid)


class Meter:
    """Bytes that east sent to west, by time: a window is the time that surely contains them. Of
    chunks, unless `count` is asked instead."""

    def __init__(self, east, count=None):
        self.count = count or (lambda: east.link("west")["sent_bytes"])
        self.samples = []

    def sample(self):
        before = time.monotonic()
        sent = self.count()
        self.samples.append((before, time.monotonic(), sent))

    def until(self, what, condition):
        wait_for(what, lambda: self.sample() or condition())

    def bytes(self):
        return self.samples[-1][2] - self.samples[0][2]

    def passed(self):
        """Seconds, at least."""
        return self.samples[-1][0] - self.samples[0][1]

    def highest(self):
        """The most that was sent in a window of at least a second, as bytes a second."""
        most = 0.0
        for i, (begin, _, first) in enumerate(self.samples):
            for _, end, last in self.samples[i + 1:]:
                if end - begin >= 1.0:
                    most = max(most, (last - first) / (end - begin))
                    break
        return most

    def lowest(self):
        """The least that was sent in a window of at least a second in which there was something
        to send, as bytes a second: the time that it surely took."""
        first, last = self.samples[0][2], self.samples[-1][2]
        full = [row for row in self.samples if first < row[2] < last]
        least = None
        for i, (_, begin, had) in enumerate(full):
            for end, _, has in full[i + 1:]:
                if end - begin >= 1.0:
                    rate = (has - had) / (end - begin)
                    least = rate if least is None else min(least, rate)
                    break
        return least


@scenario
def a_rate_holds_and_changes_live(lab):
    """P7: no second above the rate by more than 2 %, in the configured one, in a higher one set
    live, and none after `none`."""
    east, west, _ = lab.east_west(through_link=False)
    east.peer_keys["west"] = {"rate": "48Mbit", "schedule": ["00:00-24:00 48Mbit"]}
    east.extra["link"] = {"protocol_max": 1}  # whole versions
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    expect("now", limit_of(east, "west")["bit_per_s"], 48_000_000)
    for bits in (48_000_000, 96_000_000):
        if bits != 48_000_000:
            east.cli("limit", "west", "--schedule", "none", "--rate", f"{bits // 1_000_000}Mbit")
            expect("now", limit_of(east, "west")["bit_per_s"], bits)
        meter, limits = Meter(east), set()
        meter.sample()  # it may be under way before the last rank is done
        uid = trainer.publish(bits // 1_000_000)
        meter.until("west holds it", lambda: limits.add(east.control("streams")["links"][0]["limited_by"]) or west.holds(uid))
        if "cap" not in limits:
            raise Failed(f"what held the streams was {limits}")
        most = meter.highest()
        print(f"{bits} bit/s: at most {most * 8 / bits:.4f} of it in a second", flush=True)
        if not 0 < most * 8 <= bits * 1.02:
            raise Failed(f"{most * 8:.0f} bit/s were sent at a limit of {bits}")
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(trainer.publish(1000))
    for words in (("west", "--rate", "fast"), ("west", "--schedule", "noon"), ("north",)):
        expect(f"exit code of {words}", east.cli("limit", *words, check=False).returncode, 1)


@scenario
def a_rate_is_reached(lab):
    """P7: no second in which there is something to send is below the rate by more than 2 %,
    where the machine has time to send it."""
    east, west, _ = lab.east_west(through_link=False)
    east.peer_keys["west"] = {"rate": "40Mbit"}
    east.extra["link"] = {"protocol_max": 1}  # whole versions
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    said = []
    for number in range(1, 4):
        cores, meter = Cores(), Meter(east)
        meter.sample()
        uid = trainer.publish(number)
        meter.until("west holds it", lambda u=uid: west.holds(u))
        share = (meter.lowest() or 0) * 8 / 40e6
        said.append(f"{share:.4f} of it in some second" + (f" ({cores.taken()})" if cores.taken() else ""))
        print(said[-1], flush=True)
        if share >= 0.98:
            return
        if not cores.taken():
            raise Failed(f"a rate is not reached: {', '.join(said)}")
    raise Skipped(f"this machine is too busy for a rate: {', '.join(said)}")


class Device:
    """IP bytes that a site sent, by its device's own counters: an Ethernet device counts 14
    bytes before each packet too."""

    ETHERNET_BYTES = 14

    def __init__(self, veth, site):
        # Each packet by itself: of a batch that a card would cut the device counts one header
        # alone.
        veth.ip("-n", veth.names[site.name], "link", "set", "wan0", "gso_max_segs", "1")
        self.veth, self.site, self.file = veth, site, None

    def sent(self):
        if self.file is None:
            self.file = open(f"/proc/{self.site.daemon.popen.pid}/net/dev", encoding="ascii")  # of the network it lives in
        self.file.seek(0)
        fields = next(line.split() for line in self.file if line.split()[0] == "wan0:")
        return int(fields[9]) - self.ETHERNET_BYTES * int(fields[10])


@scenario
def a_device_counts_what_the_rate_says(lab):
    """P7: a rate is of IP packets, with the records of TLS and each packet's headers: what the
    device between the sites counts is it, within 2 % in each second, in mid-version, also after
    it was raised and after it was lowered, where the machine has time for it. Acknowledgements
    and words about versions count there besides, below a thousandth of it."""
    veth = lab.after.enter_context(Veth())
    lab.watch(veth, "east", "west")
    east, west, _ = lab.east_west(through_link=False, arena_mib=192)
    for site in (east, west):
        site.live_in(veth.enter(site.name, []), veth.address(site.name))
        # Room for what west is late for: what waited in TCP meanwhile would come on top of a later
        # second.
        subprocess.run(veth.enter(site.name, ["sysctl", "-q", "-w", "net.ipv4.tcp_rmem=4096 8388608 67108864"]), check=True)
    west.peers["east"] = f"{east.address}:{east.port}"
    device = Device(veth, east)
    steps = ((48_000_000, 3), (96_000_000, 2), (48_000_000, 3))  # bit/s, and for how many seconds
    east.peer_keys["west"] = {"rate": "48Mbit"}
    east.extra["link"] = {"protocol_max": 1}  # whole versions
    up(east, west)
    trainer = Trainer(lab, east, made(lab, "120M", 1)[0])
    uid = trainer.publish(1)
    west.wait_held_some(uid)
    cores, said, missed = Cores(), [], False
    for bits, seconds in steps:
        east.cli("limit", "west", "--rate", f"{bits // 1_000_000}Mbit")
        expect("now", limit_of(east, "west")["bit_per_s"], bits)
        meter = Meter(east, device.sent)
        meter.until("pieces of another rate are paid for", lambda m=meter: m.passed() > 0.1)
        meter.samples.clear()
        meter.until(f"{seconds} s of it are sent", lambda m=meter, b=bits * seconds / 8: m.bytes() > b or west.holds(uid))
        if west.holds(uid):
            raise Failed("the version is too small for this test")
        least, most = meter.lowest() * 8 / bits, meter.highest() * 8 / bits
        said.append(f"{bits} bit/s: from {least:.4f} to {most:.4f} of it in a second")
        print(said[-1], flush=True)
        missed |= not 0.98 <= least <= most <= 1.02
    if missed and cores.taken():  # what a stream was allowed and late with is in a later second
        raise Skipped(f"{cores.taken()}: {', '.join(said)}")
    if missed:
        raise Failed(f"what the device counted: {', '.join(said)}")


@scenario
def a_schedule_changes_the_rate_at_its_hour(lab):
    """P7: at one o'clock, in mid-version, a second rate holds, and no second before or after is
    above its own by more than 2 %; after midnight it is the first again."""
    slow, fast = 8_000_000, 64_000_000
    east, west, _ = lab.east_west(through_link=False)
    east.peer_keys["west"] = {"schedule": ["00:00-13:00 8Mbit", "13:00-24:00 64Mbit"]}
    east.extra["link"] = {"protocol_max": 1}  # whole versions
    clock = WallClock(east)
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    expect("at noon", limit_of(east, "west")["bit_per_s"], slow)
    before = Meter(east)
    before.sample()
    uid = trainer.publish(1)
    before.until("some of it is sent, in seconds", lambda: before.samples[-1][2] > slow // 8 * 2)
    clock.forward(3600)
    after = Meter(east)
    wait_for("the hour is come", lambda: after.sample() or limit_of(east, "west")["bit_per_s"] == fast)
    after.until("west holds it", lambda: west.holds(uid))
    for name, meter, bits in (("before", before, slow), ("after", after, fast)):
        most = meter.highest() * 8
        print(f"{name}: at most {most / bits:.4f} of {bits} bit/s in a second", flush=True)
        if not 0 < most <= bits * 1.02:
            raise Failed(f"{most:.0f} bit/s were sent {name} the hour, at a limit of {bits}")
    if after.highest() * 8 < 2 * slow:
        raise Failed(f"the second rate is not used: at most {after.highest() * 8:.0f} bit/s")
    if not east.daemon.logged("limit.rate", "rate=64Mbit"):
        raise Failed(f"no line says it: {east.daemon.logged('limit.rate')}")
    clock.forward(12 * 3600)
    wait_for("the first rate is back", lambda: limit_of(east, "west")["bit_per_s"] == slow)


@scenario
@causes("budget-spent")
def a_day_is_warned_of_then_held(lab):
    """P3 P10: a day's bytes are warned of, and what is over them does not cross, not after a
    kill either, until the next day or until an operator says so."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = {"codec": "raw"}  # bytes are counted
    east.peer_keys["west"] = {"day_bytes": "8MiB", "rate": "3Mbit"}  # between four fifths and all are two of the seconds in which it is looked at
    clock = WallClock(east)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    wait_for("the day is held", lambda: limit_of(east, "west")["day_state"] == "held")
    expect("what was said of the day", said_of_the_day(east), ["warned", "held"])
    expect("counted", east.counters()["budgets_held"], 1)
    used = limit_of(east, "west")["day_used_bytes"]
    if not 13 << 19 < used <= 8 << 20:  # a chunk is at most 1 MiB
        raise Failed(f"{used} bytes were sent on a day of 8 MiB")
    if "held" not in east.cli("status").stdout:
        raise Failed("status does not say it")
    row = says(east, "budget-spent", rf"to west: \d+ of {8 << 20} bytes are used, the day ends in \d+ s")
    named = int(re.search(r"\d+", row["evidence"]).group())
    if not used <= named <= limit_of(east, "west")["day_used_bytes"]:  # what was on its way when the day was held is counted, too
        raise Failed(f"the evidence is {row['evidence']}")
    says(west, "budget-spent", r"from east: it says that they are used up, the day ends in \d+ s")
    east.restart()
    east.wait_link("west")
    expect("after a kill", limit_of(east, "west")["day_state"], "held")
    sent = east.link("west")["sent_bytes"]
    expect("bytes after a kill", sent, 0)
    east.cli("limit", "west", "--rate", "none")
    if west.holds(uid):
        raise Failed("it crossed all the same")
    says(west, "budget-spent", r"from east: it says that they are used up, the day ends in \d+ s")  # told again, in another session
    clock.next_day()
    wait_for("as much crosses on the next day", lambda: east.link("west")["sent_bytes"] > 13 << 19)
    wait_for("and no more", lambda: limit_of(east, "west")["day_state"] == "held")
    east.cli("limit", "west", "--day-bytes", "1GiB")
    west.wait_holds(uid)
    expect("state", limit_of(east, "west")["day_state"], "ok")
    wait_for("all is counted", lambda: limit_of(east, "west")["day_used_bytes"] >= east.link("west")["sent_bytes"])
    east.cli("limit", "west", "--day-bytes", limit_of(east, "west")["day_used_bytes"] * 10 // 9)
    expect("state at nine tenths", limit_of(east, "west")["day_state"], "warned")
    if ", warned" not in east.cli("status").stdout:
        raise Failed("status does not warn")
    expect("what was said last", said_of_the_day(east)[-1], "warned")


def said_of_the_day(site):
    return [line.split("state=")[1].split()[0] for line in site.daemon.logged("limit.day")]


def held_of(site, *uids):
    """The site's holdings of each, as shares, all seen at once."""
    shares = {v["uid"]: v["held_bytes"] / v["bytes"] for v in site.control("versions")["versions"] if v["bytes"]}
    return [shares.get(uid, 0) for uid in uids]


@scenario
def models_share_a_link_by_weight(lab):
    """Of two models that cross at once, the one of three times the weight is whole when the
    other has a third."""
    east, west, link = lab.east_west()
    # Bytes are compared. Each stream has up to three chunks of the one that began first in hand or
    # ready: few streams, and most of a version, so that the third shows which it was.
    east.extra["link"] = {"codec": "raw", "streams": 2}
    for s in (east, west):
        s.models["other"] = dict(home="east", weight=10)
    east.models["policy"]["weight"] = 30
    west.subscribe.append(("other", ["east"]))
    east.peer_keys["west"] = {"rate": "1Mbit"}  # until both have begun, and nothing that counts has crossed
    link.refusing = True
    for s in (east, west):
        s.start()
    path = lab.weights(1)[0]
    heavy = Trainer(lab, east, path).publish(1)
    light = Trainer(lab, east, path, names=("other0", "other1"), model="other").publish(1)
    size = east.version(heavy)["bytes"]
    link.refusing = False
    wait_for("both cross", lambda: all(east.daemon.logged("crossing.begun", f"model={model} ") for model in ("policy", "other")))
    # Then a little more than a version passes, and the rest crawls: it is no matter when anybody
    # looks.
    link.bytes_per_s, link.crawl_at = 1 << 30, link.back_bytes + size * 11 // 10
    east.cli("limit", "west", "--rate", "60Mbit")  # the streams, not their buffers, decide what is next
    wait_for("the heavy one is whole but for a third", lambda: held_of(west, heavy)[0] > 0.67)
    seen = held_of(west, heavy, light)
    print(f"held of the heavy one and the light one: {seen[0]:.2f}, {seen[1]:.2f}", flush=True)
    if not 0.12 <= seen[1] / seen[0] <= 0.65:  # a third; chunks of 1 MiB, and what was on its way
        raise Failed(f"the light model had {seen[1]:.2f} of its bytes when the heavy one had {seen[0]:.2f}")
    link.bytes_per_s = 0
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(heavy)
    west.wait_holds(light, "other")


@scenario
@causes("share-spent")
def lag_while_its_peer_has_its_share(lab):
    """P10 P7: sixteen versions of other models cross from one peer, as many as it may have under way. The next one says
    that it waits for a share, and comes when one is over (P6)."""
    east, west, link = lab.east_west()
    others = [f"m{i}" for i in range(16)]
    for m in others:
        for s in (east, west):
            s.models[m] = dict(home="east")
        west.subscribe.append((m, ["east"]))
    for s in (east, west):
        s.extra["link"] = {"codec": "raw", "heartbeat_ms": 60000, "down_ms": 600000, "stream_idle_ms": 600000, "streams": 1}
    up(east, west)
    link.bytes_per_s = CRAWL
    path = made(lab, "2M", 1)[0]
    rank = Worker(lab, "rank", east)
    rank.ok("register", tensors=safetensors_table(path), file=str(path))

    def publishes(model):
        run = rank.ok("run", model=model, key="k")["run"]
        return rank.ok("publish", model=model, run=run, number=1, shard=0, shards=1)["uid"]
    for m in others:
        publishes(m)
    wait_for("all of them have begun", lambda: len(west.daemon.logged("crossing.begun")) >= 16)
    uid = publishes("policy")
    says(west, "share-spent", "16 of 16 versions cross from east", head="1:1", versions=1)
    link.bytes_per_s = 0
    west.wait_holds(uid)


if __name__ == "__main__":
    sys.exit(main())
