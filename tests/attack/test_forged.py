"""A worker that serves its site and forges: other bytes, with the digests of the right ones. Its readers compare proofs (P1).

Covers: gateway/daemon/sessions/session_proofs.c gateway/daemon/copies/home_landing.c
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from harness import Rollout, Trainer, Worker, expect, main, read_and_compare, safetensors_table, scenario, up, wait_for  # noqa: E402
from same_digest import BLOCK, forged  # noqa: E402
from weight_files import made  # noqa: E402
from tally import tally  # noqa: E402

FORGED_BYTES = 64 * BLOCK
PAYLOAD = b"\x80\x3f" * (BLOCK // 2)


def forge_in_staging(worker, path):
    """Changes the version where the worker stages it, at the beginning of a chunk; False when it is not there."""
    row = max(safetensors_table(path), key=lambda r: r["bytes"])
    expect("its largest tensor has chunks of its own", row["bytes"] > 2**20, True)
    data = path.read_bytes()[row["offset"]:row["offset"] + FORGED_BYTES + BLOCK]
    process = pathlib.Path(f"/proc/{worker.popen.pid}")
    for line in (process / "maps").read_text().splitlines():
        if "tombolo-staging" not in line:
            continue
        first, end = (int(at, 16) for at in line.split()[0].split("-"))
        with open(process / "mem", "r+b", buffering=0) as memory:
            memory.seek(first)
            at = memory.read(end - first).find(data)
            if at < 0:
                continue
            memory.seek(first + at)
            memory.write(forged(data, PAYLOAD)[:FORGED_BYTES])
        return True
    return False


@scenario
def a_worker_that_forges_is_found_out(lab):
    """P1: w0 holds a version, changes it so that its digests still fit, and serves it to its host. w1 refuses the chunk, says who served it, and
    gets the right bytes from the gateway."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = made(lab, "22M", 1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    pair = [Rollout(lab, west, f"w{i}", path, host="one-host") for i in range(2)]
    pair[0].stage(uid)
    expect("tensor found in the staging", forge_in_staging(pair[0].worker, path), True)
    pair[1].stage(uid)
    pair[1].activate(uid)
    pair[1].check(path)
    wait_for("west names who served it", lambda: west.daemon.logged("hop.chunk_bad", "worker=w1", "source=w0"))
    tally("forged bytes of a worker", 1)


@scenario
def home_lands_no_forged_chunk_of_a_worker(lab):
    """P1: a trainer ends before home has landed its version. A worker has all of it, changes it so that its digests still fit, and
    serves it to home. No proof is known, so home takes none of it, and says so. A trainer that seals it again brings it."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["fabric"] = {"host": "another", "pace_bytes_per_s": "64KiB"}
    east.start()
    path = made(lab, "22M", 1)[0]

    def published(name):
        rank = Worker(lab, name, east, host="one-host")
        rank.ok("register", tensors=safetensors_table(path), file=str(path))
        run = rank.ok("run", model="policy", key="run-a")["run"]
        return rank, rank.ok("publish", model="policy", run=run, number=1, shard=0, shards=1, in_place=1)["uid"]
    rank, uid = published("rank0")
    rollout = Rollout(lab, east, "w0", path, host="one-host")
    rollout.stage(uid)
    expect("home has all", east.holds(uid), False)
    rank.kill()
    expect("tensor found in the staging", forge_in_staging(rollout.worker, path), True)
    del east.extra["fabric"]["pace_bytes_per_s"]
    east.restart()
    wait_for("home says that it cannot judge", lambda: east.daemon.logged("landing.unproven", "worker=w0", "model=policy"))
    expect("home has all", east.holds(uid), False)
    _, again = published("rank1")
    expect("the same version", again, uid)
    east.wait_holds(uid)
    read_and_compare(lab, east, uid, path)


if __name__ == "__main__":
    sys.exit(main())
