"""What crosses, in which order and how much of it: policies, weights, rates, a day's bytes (P3, P6, P7, P10)."""

import sys
import time

from harness import Failed, Trainer, WallClock, expect, main, scenario, up, wait_for


def limit_of(site, peer):
    return site.link(peer)["limit"]


def published_behind_a_closed_link(lab, policy, count):
    """East has `count` versions before west, which follows by `policy`, may come. Their uids."""
    east, west, link = lab.east_west(keep=count + 1)
    west.models["policy"]["policy"] = policy
    link.refusing = True
    for s in (east, west):
        s.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uids = [trainer.publish(n + 1) for n in range(count)]
    link.refusing = False
    return west, uids


@scenario
def latest_skips_what_is_older(lab):
    """The newest of three crosses; the other two never begin."""
    west, uids = published_behind_a_closed_link(lab, "latest", 3)
    west.wait_holds(uids[2])
    for uid in uids[:2]:
        expect("bytes of an older one", (west.version(uid) or {"held_bytes": 0})["held_bytes"], 0)


@scenario
def every_skips_none(lab):
    """All three cross, and in order."""
    west, uids = published_behind_a_closed_link(lab, "every", 3)
    for uid in uids:
        west.wait_holds(uid)
    wait_for("each is told", lambda: len(west.daemon.logged("copy.whole")) == 3)
    whole = [line.split("number=")[1].split()[0] for line in west.daemon.logged("copy.whole")]
    expect("order", whole, ["1", "2", "3"])


class Meter:
    """Bytes of chunks that east sent to west, by time: a window is the time that surely contains them."""

    def __init__(self, east):
        self.east = east
        self.samples = []

    def sample(self):
        before = time.monotonic()
        sent = self.east.link("west")["sent_bytes"]
        self.samples.append((before, time.monotonic(), sent))

    def until(self, what, condition):
        wait_for(what, lambda: self.sample() or condition())

    def highest(self):
        """The most that was sent in a window of at least a second, as bytes a second."""
        most = 0.0
        for i, (begin, _, first) in enumerate(self.samples):
            for _, end, last in self.samples[i + 1:]:
                if end - begin >= 1.0:
                    most = max(most, (last - first) / (end - begin))
                    break
        return most


@scenario
def a_rate_holds_and_changes_live(lab):
    """P7: no second above the rate by more than 2 %, in the configured one, in a higher one set live, and none after `none`."""
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
        meter = Meter(east)
        meter.sample()  # it may be under way before the last rank is done
        uid = trainer.publish(bits // 1_000_000)
        meter.until("west holds it", lambda: west.holds(uid))
        most = meter.highest()
        print(f"{bits} bit/s: at most {most * 8 / bits:.4f} of it in a second", flush=True)
        if not 0 < most * 8 <= bits * 1.02:
            raise Failed(f"{most * 8:.0f} bit/s were sent at a limit of {bits}")
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(trainer.publish(1000))
    for words in (("west", "--rate", "fast"), ("west", "--schedule", "noon"), ("north",)):
        expect(f"exit code of {words}", east.cli("limit", *words, check=False).returncode, 1)


@scenario
def a_day_is_warned_of_then_held(lab):
    """P3 P10: what is over a day's bytes does not cross, not after a kill either, until the next day or until an operator says so."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = {"codec": "raw"}  # bytes are counted
    east.peer_keys["west"] = {"day_bytes": "4MiB"}
    clock = WallClock(east)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    wait_for("the day is held", lambda: limit_of(east, "west")["day_state"] == "held")
    if not east.daemon.logged("limit.day", "state=held"):
        raise Failed("no line says it")
    expect("counted", east.counters()["budgets_held"], 1)
    used = limit_of(east, "west")["day_used_bytes"]
    if used > (4 << 20) + 4 * (2 << 20):
        raise Failed(f"{used} bytes were sent on a day of 4 MiB: more than a parcel a stream too many")
    if "held" not in east.cli("status").stdout:
        raise Failed("status does not say it")
    east.restart()
    east.wait_link("west")
    expect("after a kill", limit_of(east, "west")["day_state"], "held")
    sent = east.link("west")["sent_bytes"]
    expect("bytes after a kill", sent, 0)
    if west.holds(uid):
        raise Failed("it crossed all the same")
    clock.next_day()
    wait_for("as much crosses on the next day", lambda: east.link("west")["sent_bytes"] >= 4 << 20)
    wait_for("and no more", lambda: limit_of(east, "west")["day_state"] == "held")
    east.cli("limit", "west", "--day-bytes", "1GiB")
    west.wait_holds(uid)
    expect("state", limit_of(east, "west")["day_state"], "ok")


def held_of(site, *uids):
    """What the site holds of each, as shares, all seen at once."""
    shares = {v["uid"]: v["held_bytes"] / v["bytes"] for v in site.control("versions")["versions"] if v["bytes"]}
    return [shares.get(uid, 0) for uid in uids]


@scenario
def models_share_a_link_by_weight(lab):
    """Of two models that cross at once, the one of three times the weight is whole when the other has a third."""
    east, west, link = lab.east_west()
    east.extra["link"] = {"codec": "raw"}  # bytes are compared
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
    # Then two thirds of a version pass, and the rest crawls: it is no matter when anybody looks.
    link.bytes_per_s, link.crawl_at = 1 << 30, link.back_bytes + size * 2 // 3
    east.cli("limit", "west", "--rate", "60Mbit")  # the streams, not their buffers, decide what is next
    wait_for("the heavy one is two fifths whole", lambda: held_of(west, heavy)[0] > 0.4)
    seen = held_of(west, heavy, light)
    print(f"held of the heavy one and the light one: {seen[0]:.2f}, {seen[1]:.2f}", flush=True)
    if not 0.12 <= seen[1] / seen[0] <= 0.65:  # a third; chunks of 1 MiB, and what was on its way
        raise Failed(f"the light model had {seen[1]:.2f} of its bytes when the heavy one had {seen[0]:.2f}")
    link.bytes_per_s = 0
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(heavy)
    west.wait_holds(light, "other")


if __name__ == "__main__":
    sys.exit(main())
