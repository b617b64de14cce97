"""The keys of the bench: one row each, here alone. A room (a module in ROOMS) brings the function that measures a key;
a row that no room measures is printed as skipped, with what is missing.

`needs` is asked before a function is called: "root", "wan" (sim/wan/run), "vm" (sim/vm/run), or a program's name."""

import dataclasses
import importlib
import os
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = ("between_sites", "inside_site", "chains", "hops", "codec_keys", "fleet_keys", "beside_peers", "over_wan", "several_sites", "emulator_keys", "rollouts", "floors", "vm_lab", "python_keys")

NO_ROOM = "no room of bench/ measures it yet"


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    unit: str      # of ours and of what it is held against
    goal: str      # ">= 0.5": how the ratio is to stand to which number; None: there is nothing to reach
    what: str      # a, ours
    against: str   # b
    needs: tuple = ()
    missing: str = NO_ROOM  # why it is skipped while no room measures it
    over: str = "a/b"       # how the ratio is made: "a/b" or "b/a" (theirs / ours)

    def reached(self, ratio):
        sign, number = self.goal.split()
        return ratio >= float(number) if sign == ">=" else ratio <= float(number)

    def ratio(self, a, b):
        return a / b if self.over == "a/b" else b / a


BEST_PEER = "the best of the five peers but for those that failed, which the table of the peers names"
KILLED_PEER = BEST_PEER + "; 0.05 where that is more: about as much is under way on such a path, and comes twice whichever end is killed"


def over_scenario(name, what):
    """The rows of peers.* over a scenario of sim/wan."""
    return (
        Key(f"peers.{name}.cpu", "core-s/GiB", ">= 1.0", f"core-seconds a GiB of both gateways over sim/wan's {name}: {what}",
            "the better of rclone and aria2 over it", ("root", "wan", "nginx"), over="b/a"),
        Key(f"peers.{name}.goodput", "Gbit/s", ">= 1.0", f"goodput of a full version of 256 MiB over {name}, by a link that has carried two",
            BEST_PEER + "; each is started and connects anew", ("root", "wan")),
        Key(f"peers.{name}.copies8", "s", ">= 1.0", f"eight verified local copies over {name}, as peers.copies8",
            BEST_PEER, ("root", "wan"), over="b/a"),
        Key(f"peers.{name}.cut", "s", "<= 1.0", f"seconds more with nothing passing for 5 s in mid-version over {name}",
            BEST_PEER, ("root", "wan")),
        Key(f"peers.{name}.kill", "share", "<= 1.0", f"share of 256 MiB that came twice after SIGKILL at half over {name}",
            KILLED_PEER, ("root", "wan")))


def has_avx512():
    return " avx512f" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


CLASSES_SPEED = ">= 0.25" if has_avx512() else ">= 0.12"
WAN_RAW = "goodput of a full version of 2 GiB over a path that one has crossed, raw codec, as many streams as the link finds best, {}"
CODEC_PATHS = {"50m": ("50 Mbit/s, 80 ms", 3.5), "1g": ("1 Gbit/s, 80 ms", 4.1), "loopback": ("a veth", 4.2)}  # % that change, of as large a file as each has
BETTER_CONTROL = "whichever of bbr and cubic took less over the rounds so far, set at both ends"
BEST_CODEC = "whichever of raw, zstd, planes and sparse took least over the rounds so far, set at both ends"
CONGESTION_PATHS = ("metro", "continent", "ocean", "far", "satellite-bad", "asymmetric")
KEYS = (
    Key("link.wan.2g80", "Gbit/s", ">= 0.97", WAN_RAW.format("2 Gbit/s, 80 ms, 0.01 % loss, 1500-byte packets"),
        "iperf3, best of -P 1, 4, 8, 16, 32 and of bbr and cubic", ("root", "wan", "iperf3")),
    Key("link.wan.2g80.loss01", "Gbit/s", ">= 0.95", WAN_RAW.format("2 Gbit/s, 80 ms, 0.1 % loss, 1500-byte packets"),
        "the same iperf3", ("root", "wan", "iperf3")),
    Key("link.wan.5g80.jumbo", "Gbit/s", ">= 0.97", WAN_RAW.format("5 Gbit/s, 80 ms, 0.01 % loss, 9000-byte packets"),
        "the TLS pump on the same link: best of 1, 4, 8, 16, 32 streams, bbr and cubic, blocking and batched", ("root", "wan")),
    Key("link.loopback", "GB/s", ">= 0.85",
        "goodput of a version of 1 GiB from east's arena to west's, TLS 1.3 and digests on, from crossing begun to whole "
        "at west; 8 streams, raw codec",
        "the TLS pump: best of 1, 2, 4, 8 streams, bbr and cubic where the kernel has them, cold 1 GiB, blocking and batched"),
    Key("link.cpu", "core-s/GiB", ">= 1.0", "core-seconds a GiB of both gateways while a full version crosses, digests on; "
        "no codec", "the better of rclone and aria2 from nginx over mutual TLS, client and server, 8 streams",
        ("root", "nginx"), over="b/a"),
    Key("peers.goodput", "Gbit/s", ">= 1.0", "goodput of a full version over a veth, gateway to gateway",
        "the best of rclone, aria2, Globus GridFTP, XRootD, rsync over stunnel", ("root",)),
    Key("peers.copies8", "s", ">= 1.0", "from the crossing's begin until eight workers have staged it, each chunk verified",
        "the best of the same: its pull, then eight copies verified by SHA-256, a core each", ("root",), over="b/a"),
    Key("peers.cut", "s", "<= 1.0", "seconds more with the carrier gone for 5 s in mid-version, 800 Mbit/s",
        "the best of the same", ("root",)),
    Key("peers.kill", "share", "<= 1.0", "share of 256 MiB that came twice after SIGKILL of the receiver at half",
        "0.05 of it", ("root",)),
    *over_scenario("continent", "1 Gbit/s, 30 ms, 0.001 % loss"),
    *over_scenario("ocean", "1 Gbit/s, 80 ms, 0.01 % loss"),
    Key("link.next_version", "s", ">= 60", "publish call to held at the remote gateway, a step behind a step; 2 GiB, 2 % changed, 200 Mbit/s, 80 ms",
        "a full raw copy over that link: the TLS pump, best of 1, 4, 8, 16, 32 streams, bbr and cubic", ("root", "wan"), over="b/a"),
    Key("link.next_version.fast", "s", ">= 15", "the same at 1 Gbit/s", "likewise", ("root", "wan"), over="b/a"),
    Key("link.burst", "s", "<= 1.5", "100 MB after 60 s idle, 1 Gbit/s, 80 ms", "bytes / rate + one RTT",
        ("root", "wan")),
    Key("link.warm", "s", "<= 3.0", "publish call to held at the remote gateway of 8 MiB, whole and raw, over connections that carried as much before; "
        "1 Gbit/s, 150 ms: seconds beyond bytes / rate", "one RTT", ("root", "wan")),
    Key("link.warm.step", "s", "<= 1.0", "publish call to held at the remote gateway of a step of 8 MiB, 3.3 % changed, over connections that carried as much before; "
        "1 Gbit/s, 150 ms", "one RTT: half of it is the path's, and nobody asks before it goes", ("root", "wan")),
    Key("link.cold", "s", "<= 1.0", "from the first crossing's begin over a path that nothing is known of, 500 Mbit/s, 80 ms, until nine tenths of "
        "the goodput of its second half were reached for half a second", "5 s", ("root", "wan")),
    *(Key(f"link.congestion.{name}", "Gbit/s", ">= 0.95", f"goodput of a full version over sim/wan's {name} with congestion control `auto`",
          BETTER_CONTROL, ("root", "wan")) for name in CONGESTION_PATHS),
    Key("link.congestion.flapping", "Gbit/s", ">= 0.95", "goodput of a full version over sim/wan's flapping with congestion control `auto`; in the middle of each crossing "
        "both ways are cut for two seconds", BETTER_CONTROL, ("root", "wan")),
    Key("link.congestion.shared-bottleneck", "Gbit/s", ">= 0.95", "goodput of a full version to three sites at once over sim/wan's shared-bottleneck, each of which takes it from "
        "home: three times its bytes, until the last one holds it; congestion control `auto`", BETTER_CONTROL, ("root", "wan")),
    Key("link.stream.tenth", "s", "<= 1.05", "a full version over eight streams of which one is paced at a tenth of its share; 400 Mbit/s, 80 ms",
        "the same over eight that are alike", ("root", "wan")),
    Key("link.stream.stalled", "s", "<= 1.05", "a full version over eight streams of which one loses every packet from before the crossing's begin on; 400 Mbit/s, 80 ms",
        "the same over eight that are alike", ("root", "wan")),
    *(Key(f"link.codec.{name}.{kind}", "GB/s", ">= 0.95", f"{what} with link.codec `auto`; {path}", BEST_CODEC,
          ("root",) if name == "loopback" else ("root", "wan")) for name, (path, changed) in CODEC_PATHS.items() for kind, what in (
              ("full", "goodput of a full version behind another one, from the crossing's begin,"), ("step", f"bytes of a version a second, three steps in a row, {changed} % changed, each from its publish call,"))),
    *(Key(f"link.codec.{name}.mixed", "GB/s", ">= 0.95", f"bytes of a version a second, three steps in a row that change every other tensor hardly and the others everywhere, each from "
          f"its publish call, with link.codec `auto`; {CODEC_PATHS[name][0]}", BEST_CODEC,
          ("root", "wan")) for name in ("50m", "1g")),
    Key("link.relay", "s", "<= 1.1", "from a version's first crossing's begin until the third of three sites in a row holds it, less a parcel a hop; raw, each hop "
        "50 Mbit/s and 40 ms", "until the second holds it, where there is no third", ("root", "wan")),
    Key("link.lanes", "Mbit/s", ">= 1.9", "goodput of a full version between two sites of two gateways each, until both of the second hold it; raw, each lane's path "
        "40 Mbit/s and 40 ms", "the same with one gateway each and one path", ("root", "wan")),
    Key("publish.hold", "s", "<= 3.0",
        "hold of 1 GiB in shadow mode while the other site's gateway is gone; the rank's first two versions, whose shadows "
        "are made then, are not counted", "memcpy of 1 GiB, cold, on one core"),
    Key("publish.hold.first", "s", "<= 2.0", "hold of a rank's first version, 1 GiB in shadow mode, that was registered and prepared (tb_publish_prepare) five seconds before",
        "that of the same rank's third version"),
    Key("stage.first", "s", "<= 2.0", "a worker's first stage, 1 GiB into host memory of a host that has the gateway, five seconds after its subscription",
        "that of the same worker's third version"),
    Key("tensors.many", "s", "<= 1.1", "from the publish call until a worker of another host has switched to it, a version of 512 MiB in 100,000 "
        "tensors; mean of those that follow the first", "the same bytes as one tensor"),
    Key("tensors.many.in_place", "s", "<= 1.1", "the same of a version that is published in place, its 100,000 tensors one behind the other in a flat buffer", "the same bytes as one tensor"),
    Key("stall.remote8", "s", ">= 100", "stall of 8 rollouts of a remote site, 256 MiB each, in place from staging, all at once",
        "each pulling the full version over a 1 Gbit/s, 80 ms link: the TLS pump, a stream a rollout", ("root", "wan"), over="b/a"),
    Key("age.remote8", "s", "<= 0.25", "mean over time and rollouts of now - publish call of the active version; 8 rollouts, "
        "256 MiB, four versions a round (20 in five), a step of 2 % every 10 s, 1 Gbit/s, 80 ms",
        "each of the 8 pulling the newest full version over that link as soon as its last pull ended",
        ("root", "wan")),
    Key("figure.standalone", "s", ">= 6.7", "stall, mean of 8 readers at the trainer's site that take a version of 64 MiB at once; NICs of "
        "537 Mbit/s", "each pulling all of it from the trainer's NIC at once; the goal is what TensorHub's paper has", ("root",), over="b/a"),
    Key("figure.elastic", "s", ">= 4.8", "seconds from a reader's start until it has switched to a version of 128 MiB, mean of 8 that come a "
        "second apart; NICs of 268 Mbit/s", "each pulling all of it from the trainer's NIC; the goal is the paper's", ("root",), over="b/a"),
    Key("figure.crossdc", "s", ">= 19", "stall.remote8, as the paper's third figure", "likewise; the goal is the paper's",
        ("root", "wan"), over="b/a"),
    Key("chain.n4", "s", "<= 1.15", "time until four hosts hold a version of 512 chunks of 1 MiB, each reading from the one "
        "before, in memory that stands", "the same for one host; every NIC paced to 32 MiB/s"),
    Key("chain.n8", "s", "<= 1.15", "time until eight hosts hold a version of 512 chunks of 1 MiB, each reading from the one "
        "before, in memory that stands", "the same for one host; every NIC paced to 32 MiB/s"),
    Key("chain.joins", "s", "<= 1.2", "the slowest of twenty hosts that join one a second while a version of 128 chunks of 1 MiB spreads, each from "
        "its stage call; NICs of 5 MiB/s", "the same for a host alone"),
    Key("chain.joined_before", "s", "<= 1.1", "the slowest of the nineteen that had others join after them", "a host alone"),
    Key("chain.slow", "s", "<= 1.3", "time until seven of eight hosts have a version of 128 chunks, the third of the chain having a NIC of an "
        "eighth; NICs of 16 MiB/s", "the same for eight equal hosts"),
    Key("chain.slow_first", "s", "<= 1.3", "the same where the slow one stands first, so that all of the chain read at its rate",
        "the same for eight equal hosts"),
    Key("chain.killed", "s", "<= 1.0", "from SIGKILL of a source in mid-chain until its reader has bytes of another; NICs of 8 MiB/s, tcp",
        "0.25 s"),
    Key("chain.silent", "s", "<= 1.1",
        "from SIGSTOP of a source in mid-chain until its reader, or the site, has noticed",
        "three heartbeats: 1.5 s"),
    Key("chain.resumed", "s", "<= 1.0", "from that notice until the reader has bytes of another source", "0.25 s"),
    Key("chain.killed.shm", "s", "<= 1.0", "chain.killed where source and reader are on one host, by shm", "0.25 s"),
    Key("chain.silent.shm", "s", "<= 1.1", "chain.silent, likewise", "three heartbeats: 1.5 s"),
    Key("chain.resumed.shm", "s", "<= 1.0", "chain.resumed, likewise", "0.25 s"),
    Key("chain.cut_through", "s", "<= 1.0", "from a remote gateway's last chunk until eight hosts of its site have the version of 128 MiB; the "
        "link is held to 200 Mbit/s, NICs are of 537 Mbit/s", "3 % of the crossing and a chunk's time on it a host"),
    Key("chain.step", "s", ">= 30", "publish to staged by eight hosts that hold the version before, 256 MiB, 2 % changed; NICs of "
        "100 Mbit/s, tcp", "the version whole", over="b/a"),
    Key("chain.step.bytes", "bytes", "<= 0.05", "what the eight read for it", "what they read for the version whole"),
    Key("fabric.pace", "MiB/s", ">= 0.98", "bytes a second of one host whose NIC is paced, over a version of 512 MiB",
        "the rate asked: 32 MiB/s"),
    Key("verbs.hop", "MiB/s", ">= 0.95", "one hop's READs over RDMA in the VM, one host, digest off", "ib_read_bw of 65536 bytes in the "
        "same boot", ("vm", "ib_read_bw")),
    Key("floor.digest", "cores", None, "cores that digest 50 GB/s: 50 / GB/s of XXH3-128 over chunks of 1 MiB, one core, cold",
        "one core"),
    Key("shm.hop", "GB/s", ">= 0.9", "one hop by shared memory between workers, with proofs", "memcpy, then BLAKE3, as many cores"),
    Key("lent.hop", "GB/s", ">= 0.8",
        "one hop out of another process's own memory, by memory that the reader lends, with digests",
        "the same by process_vm_readv"),
    Key("lent.hop.socket", "GB/s", ">= 1.0", "the same hop by lent memory", "the same by the door's socket"),
    Key("lent.publish", "GB/s", ">= 0.8",
        "a version that a rank publishes out of its own memory, until its gateway, in its sandbox, holds all of it",
        "the same with `sandbox: false`, where the gateway reads the rank by process_vm_readv"),
    Key("tcp.hop", "GB/s", ">= 0.9", "one hop by tcp between workers, with proofs",
        "a minimal socket pump over the same memory, then BLAKE3, as many cores"),
    Key("tls.hop", "GB/s", ">= 0.6", "one hop by tcp inside TLS between workers, with proofs", "the same in clear"),
    Key("python.publish", "ms", "<= 1.05", "publish() of 1 GB of bfloat16 parameters through Python, in the environment `torch`",
        "tb_publish of the same registration"),
    Key("python.activate", "ms", "<= 1.05", "Follower.apply() of it, into parameters", "tb_activate of the same subscription"),
    Key("python.files", "GB/s", ">= 1.0", "load_files() of 1 GB of safetensors, in the page cache, into parameters", "readinto the parameters' memory, as many threads"),
    # The goal is of the first five rounds on a quiet machine: ours took 25 to 28 ms in each, and
    # reload_weights 102 to 336 ms. Beside other programs the ratio was 11.4, and 8 its goal.
    Key("vllm.stall.in_place", "ms", ">= 4.0", "start_weight_update to finish of vLLM on the CPU for a version of 374 MB that is staged, each element of which "
        "changed, all of it written in place as on a GPU; in the environment `vllm`", "vLLM's reload_weights of 374 MB of safetensors in the page cache", over="b/a"),
    Key("codec.classes", "B/change", "<= 0.82", "bytes a changed element, mean of eight steps weighted by changes, headers "
        "included", "one byte"),
    Key("codec.classes.encode", "GB/s", CLASSES_SPEED, "encoding a step, 8 classes, one core", "scan of the two versions"),
    Key("codec.classes.decode", "GB/s", CLASSES_SPEED, "decoding a step, 8 classes, one core, from the base into other memory",
        "scan of the two versions"),
    Key("codec.gaps", "B/change", "<= 1.20", "bytes a changed element with one class", "one byte"),
    Key("codec.gaps.encode", "GB/s", ">= 0.6", "encoding a step, one class, one core", "scan of the two versions"),
    Key("codec.gaps.decode", "GB/s", ">= 0.6", "decoding a step, one class, one core", "scan of the two versions"),
    Key("codec.full", "bytes", ">= 1.45", "full bf16 version, raw", "the same, coded"),
    Key("codec.full.encode", "GB/s", ">= 0.2", "encoding a full bf16 version, one core", "memcpy"),
    Key("codec.full.decode", "GB/s", ">= 0.35", "decoding a full bf16 version, one core", "memcpy"),
    Key("fleet.floor", "s", "<= 1.1", "a model's time, event by event, until 20,000 workers of 20 equal sites (125 hosts of 8 each; one is home) hold 240 GB "
        "in 16384 chunks; links of 10 Gbit/s and 40 ms one way, NICs of 100 Gbit/s, fan-out by rates, no losses",
        "one copy over the link, and its delay"),
    Key("fleet.chain.n1000", "s", "<= 1.2", "a model's time, event by event, until a chain of 1,000 hosts holds a version of 8192 chunks of 16 MiB, "
        "the largest there are; link and NIC of 100 Gbit/s", "the same for one host"),
    Key("fleet.joins", "s", "<= 1.0", "CPU of the shipped catalog core, without sockets, while 10,000 workers join it within a lease: "
        "open, subscribe, stage, export, progress each second, renew", "the lease, 10 s: one core"),
    Key("wan.rate", "%", "<= 1.0", "how far the rate of an overloaded link of sim/wan is off the 500 Mbit/s asked, in IP packets",
        "2 %", ("root", "wan", "iperf3")),
    Key("wan.delay", "ms", "<= 1.0", "how far one packet in a hundred of an idle link of sim/wan is, or further, from the 40 ms asked", "1 ms",
        ("root", "wan")),
    Key("wan.2g.mtu1500", "Gbit/s", ">= 0.97", "goodput of eight TCP streams through a sim/wan link of 2 Gbit/s, 80 ms, 1500-byte packets",
        "the rate without TCP's and IP's headers; a run in which the emulator fell behind does not count", ("root", "wan", "iperf3")),
    Key("wan.5g.mtu9000", "Gbit/s", ">= 0.97", "the same at 5 Gbit/s with 9000-byte packets", "likewise", ("root", "wan", "iperf3")),
    Key("vm.around", "s", "<= 1.0", "what sim/vm/run takes around a command that does nothing: from its own start to the command's, and from the "
        "command's end to its own", "15 s", ("vm",)),
    Key("vm.around.hosts2", "s", "<= 1.0", "the same with two VMs on one wire", "15 s", ("vm",)),
    Key("floor.iperf3", "GB/s", None, "clear TCP on loopback, iperf3 with two streams", "memcpy of 1 GiB, cold, on one core", ("iperf3",)),
    Key("floor.pump", "GB/s", None, "the TLS pump on loopback, best of its ways", "memcpy"),
    Key("floor.aes", "GB/s", None, "openssl speed, AES-128-GCM in records of 16 KiB, one core", "memcpy", ("openssl",)),
    Key("floor.ib_read_bw", "GB/s", None, "ib_read_bw over rdma_rxe in the VM, an emulated processor", "memcpy outside of it",
        ("vm", "ib_read_bw")),
    Key("gateway.rss", "MiB", "<= 1.0", "RssAnon of the receiving gateway, the most of samples at 10 Hz while a version of "
        "1 GiB is landed at home and crosses", "64 MiB and 1 MiB for each of 8 streams"),
    Key("gateway.rss.home", "MiB", "<= 1.0", "the same of the sending gateway, at the model's home",
        "64 MiB and 1 MiB for each of 8 streams"),
)
BY_NAME = {key.name: key for key in KEYS}


def lacking(key):
    """Why this machine cannot measure the key; None when it can."""
    for need in key.needs:
        if need == "root":
            if os.geteuid() != 0:
                return "needs root, for network namespaces"
        elif need in ("wan", "vm"):
            if not (ROOT / "sim" / need / "run").exists():
                return f"sim/{need} is not in this tree"
        elif shutil.which(need, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"{need} is not installed; bench/setup installs it"
    return None


def load_rooms():
    """Each room registers its measurements with measuring.measurement."""
    for room in ROOMS:
        importlib.import_module(room)
