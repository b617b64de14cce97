"""Integrations with trainers and engines that do not install here, against the shapes of their interfaces.

Covers: python/tombolo/integrations/nemo_rl.py python/tombolo/integrations/sglang.py python/tombolo/integrations/slime.py
Covers: python/tombolo/integrations/miles.py python/tombolo/integrations/servers.py
"""

import argparse
import asyncio
import http.server
import json
import os
import sys
import threading
import types
from dataclasses import dataclass
from typing import Any
from unittest import mock

import packages

packages.run_in("torch")

import torch  # noqa: E402
from harness import PATIENCE_S, Failed, expect, main, scenario  # noqa: E402

import tombolo  # noqa: E402
from tombolo.integrations import miles, nemo_rl, servers, sglang, slime  # noqa: E402


def sites(lab):
    """The trainer's gateway, and the rollouts'."""
    east, west, _ = lab.east_west(keep=8)
    east.start()
    west.start()
    return f"unix:{east.session_socket}", f"unix:{west.session_socket}"


def weights(step):
    generator = torch.Generator().manual_seed(step)
    return {f"layers.{i}.weight": torch.randn(64, 64, generator=generator).bfloat16() for i in range(6)}


def same(got, want):
    return sorted(got) == sorted(want) and all(torch.equal(got[name], want[name]) for name in want)


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            expect(f"{word!r} in {str(error)!r}", word in str(error), True)
        return
    raise Failed(f"no {kind.__name__} was raised")


def create_checkpoint_engine(backend, *, bucket_size_bytes, engine_kwargs):
    """As NeMo-RL makes one of "module:Class"."""
    module, name = backend.split(":", 1)
    return getattr(__import__(module, fromlist=[name]), name)(bucket_size=bucket_size_bytes, **engine_kwargs)


@scenario
def nemo_rl_refits_its_rollouts(lab):
    """P1 P2: two policy workers and two rollouts, three refits. Batches have about the bucket's bytes."""
    east, west = sites(lab)
    made = dict(model="policy", gateway=east, rollout_gateway=west, wait_s=PATIENCE_S)
    engines = [create_checkpoint_engine("tombolo.integrations.nemo_rl:CheckpointEngine", bucket_size_bytes=20000, engine_kwargs=made) for _ in range(4)]
    policies, rollouts = engines[:2], engines[2:]

    async def refit(step):
        metadata = json.loads(json.dumps([engine.prepare() for engine in engines]))
        for i in range(2):
            policies[i].init_policy_process_group(worker_rank=i, train_world_size=2, rollout_world_size=2, metadata=metadata)
            rollouts[i].init_rollout_process_group(rollout_rank=i, train_world_size=2, rollout_world_size=2, metadata=metadata)
        taken = [0, 0]

        def walk(i):
            for pair in weights(step).items():
                taken[i] += 1
                yield pair

        async def receive(rollout):
            got, sizes = {}, []
            async for batch in rollout.receive_weight_batches():
                sizes.append(len(batch))
                got.update((name, tensor.clone()) for name, tensor in batch)
            return got, sizes
        for i, policy in enumerate(policies):
            await policy.send_weights(walk(i))
        expect("each rank walks through all", taken, [6, 6])
        for got, sizes in await asyncio.gather(*map(receive, rollouts)):
            expect(f"refit {step}", (same(got, weights(step)), sizes), (True, [2, 2, 2]))
        for engine in engines:
            engine.finalize()
    for step in (1, 2, 3):
        asyncio.run(refit(step))
    expect("kept for a layout that is not asked for", (engines[0].get_target_weight_layout(), nemo_rl.CheckpointEngine.shard_expert_weights), (None, False))
    raised(ValueError, lambda: rollouts[0].init_rollout_process_group(
        rollout_rank=0, train_world_size=1, rollout_world_size=1, metadata=[{"model": "a", "next": 1}, {"model": "b", "next": 1}]), "a, b")
    for engine in engines:
        engine.close()


@dataclass(frozen=True, kw_only=True)
class Context:
    """SGLang's WeightUpdateReceiverContext."""

    model: Any
    device: Any
    tp_rank: int
    tp_size: int
    group_name: str
    master_address: str
    master_port: int
    world_size: int
    rank_offset: int
    init_payload: Any = None


class Model(torch.nn.Module):
    """Of an engine: a fused parameter, and a loader by names of the checkpoint."""

    def __init__(self):
        super().__init__()
        self.fused = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(128, 64, dtype=torch.bfloat16)) for _ in range(3)])

    def load_weights(self, pairs):
        for name, tensor in pairs:
            layer = int(name.split(".")[1])
            with torch.no_grad():
                self.fused[layer // 2].data.narrow(0, 64 * (layer % 2), 64).copy_(tensor)

    def has(self, step):
        whole = weights(step)
        return all(torch.equal(self.fused[i], torch.cat([whole[f"layers.{2 * i}.weight"], whole[f"layers.{2 * i + 1}.weight"]])) for i in range(3))


class Scheduler(http.server.BaseHTTPRequestHandler):
    """SGLang's server as far as weights go: each request goes to the receiver, and what it raises is a 400."""

    told, receivers, model, payload = [], {}, None, None

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"null")
        self.told.append(self.path)
        code, said = 200, {"success": True, "message": ""}
        try:
            if self.path == "/init_weights_update_group":
                module, name = body["receiver"].rsplit(".", 1)
                given = {key: body[key] for key in ("group_name", "master_address", "master_port", "world_size", "rank_offset")}
                self.receivers[body["group_name"]] = getattr(sys.modules[module], name)(
                    Context(model=self.model, device="cpu", tp_rank=0, tp_size=1, init_payload=body["receiver_init_payload"], **given))
            elif self.path == "/update_weights_from_distributed":
                expect("no tensors beside a receiver", (body["names"], body["dtypes"], body["shapes"]), ([], [], []))
                self.receivers[body["group_name"]].receive(body["receiver_payload"])
        except Exception as error:  # the server's answer
            code, said = 400, {"success": False, "message": str(error)}
        text = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def serve(model):
    Scheduler.told, Scheduler.receivers, Scheduler.model = [], {}, model
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scheduler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


UPDATE = ["/pause_generation", "/update_weights_from_distributed", "/continue_generation"]


@scenario
def sglang_receives_a_version_by_its_number(lab):
    """P1 P2 P10: the receiver behind SGLang's requests, with fused parameters as boxes in place, and the
    custom loader. A version that is nowhere is refused, the server is resumed, and the model keeps what
    it has."""
    east, west = sites(lab)
    model = Model()
    server, url = serve(model)
    tombolo.publish("policy", 1, weights(1), gateway=east, run="key")
    switch = servers.Sglang([url], timeout=PATIENCE_S * 2, model="policy", gateway=west, timeout_s=PATIENCE_S)
    switch(1)
    expect("the first", (model.has(1), Scheduler.told), (True, ["/init_weights_update_group", *UPDATE]))
    tombolo.publish("policy", 2, weights(2), gateway=east, run="key").wait_held("west", PATIENCE_S)
    switch(2)
    expect("the second", (model.has(2), Scheduler.told[4:]), (True, UPDATE))
    receiver = Scheduler.receivers["tombolo"]
    expect("stages ahead", receiver.replica.core._thread is not None, True)
    receiver.replica.timeout_s = 0.2
    raised(servers.Refused, lambda: switch(9), "/update_weights_from_distributed: 400", "version 9")
    expect("resumed", (model.has(2), Scheduler.told[-1]), (True, "/continue_generation"))
    raised(ValueError, lambda: receiver.receive({}), "\"version\"")
    receiver.destroy()
    given = types.SimpleNamespace(model=None, tp_rank=0, tp_size=2, init_payload={"ahead": True})
    with mock.patch.object(sglang.Worker, "gather", lambda self, mine: [mine, mine]), mock.patch.object(sglang.replica.Replica, "open"):
        one_of_two = sglang.Receiver(given)
    expect("ranks do not go ahead of each other", one_of_two._ahead, False)
    server.shutdown()
    os.environ.update(TOMBOLO_GATEWAY=west, TOMBOLO_MODEL="policy")
    other = Model()
    raised(ValueError, lambda: sglang.load(other, [("w", torch.zeros(1))]), "name no version")
    sglang.load(other, [(sglang.STEP, torch.tensor([2]))])
    expect("by the custom loader", other.has(2), True)
    for _, made in sglang._receivers.values():
        made.destroy()
    tombolo.close_publishers()


@scenario
def folders_of_slime_cross_to_the_engines_host(lab):
    """P1 P2: the trainer's hook behind each write, and the engine's before each read. A host that starts
    late gets the folders that it missed."""
    east, west = sites(lab)
    written, read, late = lab.dir / "written", lab.dir / "read", lab.dir / "late"
    written.mkdir()
    os.environ.update(TOMBOLO_MODEL="policy", TOMBOLO_GATEWAY=east, TOMBOLO_RUN="key", TOMBOLO_WAIT_S=str(PATIENCE_S))
    slime.post_write(argparse.Namespace(), str(written), [])  # the baseline
    for step in (1, 2, 3):
        folder = written / f"weight_v{step:06d}"
        folder.mkdir()
        (folder / "model-00000-of-00001.safetensors").write_bytes(bytes([step]) * (2 << 20) + bytes(step))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"version": f"{step:06d}"}}))
        (folder / "model-00001.safetensors.tmp").write_bytes(b"half")
        slime.post_write(argparse.Namespace(), str(folder), [])
    os.environ["TOMBOLO_GATEWAY"] = west
    for target, into in ((1, read), (3, read), (3, late), (3, late), (2, late)):
        slime.pre_read(str(into), target)
        for step in range(1, target + 1):
            files = {path.name: path.read_bytes() for path in (into / f"weight_v{step:06d}").iterdir()}
            expect(f"{into.name} {step}", files, {path.name: path.read_bytes() for path in (written / f"weight_v{step:06d}").iterdir()
                                                if path.suffix != ".tmp"})
    os.environ["TOMBOLO_WAIT_S"] = "0.2"
    raised(tombolo.Error, lambda: slime.pre_read(str(late), 4), "not in the time given")
    expect("nothing half is there", sorted(path.name for path in late.iterdir() if not path.name.startswith(".")),
           [f"weight_v{step:06d}" for step in (1, 2, 3)])


def shape_of_miles():
    """Modules of miles with what an external protocol meets."""
    @dataclass(frozen=True)
    class WeightUpdatePlacement:
        gather_pp: bool

    class WeightTransferProtocol:
        required_placement = WeightUpdatePlacement(gather_pp=False)

        def __init__(self, args):
            self.args, self.rollout_engines, self.is_sender, self.update_weight_metrics = args, None, None, {}

        def begin_sync(self, weight_version, iter_buckets):
            return True

        def after_base_weights(self):
            pass

        def after_engines_resumed(self):
            pass

        def pop_metrics(self):
            metrics, self.update_weight_metrics = self.update_weight_metrics, {}
            return metrics
    parts = ("miles", "miles.backends", "miles.backends.training_utils", "miles.backends.training_utils.weight_update",
             "miles.backends.training_utils.weight_update.protocol")
    for name in parts:
        sys.modules[name] = types.ModuleType(name)
    sys.modules[parts[-1]].WeightTransferProtocol = WeightTransferProtocol
    return WeightTransferProtocol


@scenario
def miles_sends_buckets_and_switches_its_engines(lab):
    """P1 P2: the external protocol as miles drives it, and an engine of SGLang behind it."""
    protocol_class = shape_of_miles()
    east, west = sites(lab)
    model = Model()
    server, url = serve(model)
    os.environ.update(TOMBOLO_MODEL="policy", TOMBOLO_GATEWAY=east, TOMBOLO_RUN="key", TOMBOLO_SITES=" west, ")
    protocol = miles.build_protocol(argparse.Namespace(pause_generation_mode="in_place"))
    expect("its kind", (isinstance(protocol, protocol_class), protocol.required_placement.gather_pp, protocol.use_weight_update_session), (True, True, False))
    protocol.connect([types.SimpleNamespace(server_url=url)], [1], [0], parallel_state=None, placement=None, selector="all")
    expect("sender", protocol.is_sender, True)
    protocol.sender._switch._options = dict(gateway=west, timeout_s=PATIENCE_S)  # both sites are on this host
    for step in (1, 2):
        expect("takes part", protocol.begin_sync(step, lambda **_: iter(())), True)
        pairs = list(weights(step).items())
        for bucket in (pairs[:4], pairs[4:]):
            protocol.send_bucket(bucket)
            expect("empty", bucket, [])
        protocol.after_base_weights()
        protocol.finalize(step)
        protocol.after_engines_resumed()
        expect(f"step {step}", (model.has(step), sorted(protocol.pop_metrics())[:2]), (True, ["perf/tombolo_bytes", "perf/tombolo_publish_s"]))
    expect("told", Scheduler.told, ["/init_weights_update_group", *UPDATE, *UPDATE])
    server.shutdown()
    server.server_close()
    protocol.send_bucket(list(weights(3).items()))
    raised(RuntimeError, lambda: protocol.finalize(3), "tombolo: version 3: Refused: ", f"{url}/pause_generation: ", "Connection refused", "/continue_generation")
    protocol.sender._publisher.close()
    for receiver in Scheduler.receivers.values():
        receiver.destroy()


if __name__ == "__main__":
    sys.exit(main())
