"""verl's real package: the checkpoint engine in process, and with its manager on Ray.

Covers: python/tombolo/integrations/verl.py
"""

import asyncio
import contextlib
import os
import pathlib
import socket
import sys
import time
from types import SimpleNamespace

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python")]
import packages  # noqa: E402

packages.run_in("verl")
os.environ["RAY_DISABLE_IMPORT_WARNING"] = os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
PATIENCE = os.environ.get("TB_PATIENCE_S", "240")  # of Ray, on a busy machine
os.environ.update(RAY_raylet_start_wait_time_s=PATIENCE, RAY_worker_register_timeout_seconds=PATIENCE,
                  RAY_gcs_server_request_timeout_seconds=PATIENCE, RAY_agent_register_timeout_ms=f"{PATIENCE}000")

import torch  # noqa: E402
from harness import PATIENCE_S, Failed, expect, main, scenario  # noqa: E402
from verl.checkpoint_engine import CheckpointEngineRegistry, CheckpointEngineWorker  # noqa: E402
from verl.utils.import_utils import import_external_libs  # noqa: E402
from verl.workers.config import CheckpointEngineConfig  # noqa: E402

import tombolo  # noqa: E402


def weights(step):
    generator = torch.Generator().manual_seed(step)
    return {f"model.layers.{i}.weight": torch.randn(64, 64, generator=generator).bfloat16() for i in range(8)}


def sites(lab):
    """The trainer's gateway, and the rollouts'."""
    east, west, _ = lab.east_west()
    east.start()
    west.start()
    return f"unix:{east.session_socket}", f"unix:{west.session_socket}"


def config(lab, **options):
    east, west = sites(lab)
    return CheckpointEngineConfig(backend="tombolo", update_weights_bucket_megabytes=1, custom_backend_module="tombolo.integrations.verl",
                                  engine_kwargs={"tombolo": dict(model="policy", gateway=east, rollout_gateway=west, **options)})


class Server:
    """The stand-in for the engine at a rollout: it keeps what it loads."""

    replica_rank, is_leader_rank = 0, True

    async def update_weights(self, pairs, global_steps=None, wire_format=None, **_):
        self.got = {name: tensor.clone() async for name, tensor in pairs}
        self.step, self.wire = global_steps, wire_format


def same(got, want):
    return sorted(got) == sorted(want) and all(torch.equal(got[name], want[name]) for name in want)


@scenario
def a_checkpoint_engine_carries_each_step_to_its_rollouts(lab):
    """P1 P2: two actors and two rollouts at two sites, by verl's own worker. A step that is not there is
    an error after wait_s, and the rollout keeps what it has."""
    config_ = config(lab, wait_s=PATIENCE_S)
    import_external_libs(config_.custom_backend_module)
    made = config_.engine_kwargs["tombolo"]
    actors = [CheckpointEngineRegistry.new("tombolo", bucket_size=1 << 20, is_master=i == 0, **made) for i in range(2)]
    engines = [CheckpointEngineRegistry.new("tombolo", bucket_size=1 << 20, **made) for _ in range(2)]
    rollouts = []
    for engine in engines:
        rollout = CheckpointEngineWorker.__new__(CheckpointEngineWorker)
        rollout.checkpoint_engine, rollout.server_adapter = engine, Server()
        rollouts.append(rollout)

    async def update(step, ahead):
        metadata = [engine.prepare() for engine in actors + engines]
        topology = CheckpointEngineRegistry.get("tombolo").build_topology(len(actors), len(engines), metadata)
        for members, given in zip((actors, engines), topology):
            for i, engine in enumerate(members):
                engine.init_process_group(**{key: values[i] for key, values in given.items()})
        taken = [0, 0]

        def walk(i):
            for pair in weights(step).items():
                taken[i] += 1
                yield pair
        sends = [await actor.send_weights(walk(i), global_steps=step) for i, actor in enumerate(actors)]
        expect("each rank walks through all", taken, [8, 8])
        expect("metrics", (sends[0]["tombolo/version"], sends[0]["tombolo/bytes"] >= 65536, sends[1]), (step, True, {}))
        if ahead:
            for engine in engines:
                engine.stage(step)
            expect("sent once", await actors[0].send_weights(walk(0), global_steps=step), {})
        await asyncio.gather(*(CheckpointEngineWorker.update_weights.__wrapped__(rollout, global_steps=step) for rollout in rollouts))
        for engine in actors + engines:
            engine.finalize()
        for rollout in rollouts:
            server = rollout.server_adapter
            expect(f"step {step}", (server.step, server.wire, same(server.got, weights(step))), (step, "named_tensors", True))
            expect("active", rollout.checkpoint_engine._in.version(), step)

    async def all_of_it():
        for step in (1, 2, 4):
            await update(step, ahead=step == 4)
        engines[0].wait_s = 0.2
        try:
            [pair async for pair in engines[0].receive_weights(global_steps=9)]
        except tombolo.Error as error:
            expect("why", error.name, "timeout")
        else:
            raise Failed("a step that is nowhere was received")
        expect("active still", engines[0]._in.version(), 4)
    asyncio.run(all_of_it())
    for engine in actors + engines:
        engine.close()


def name_ports():
    """Of Ray's agents: where they choose their ports, Ray ends if they have not within 15 s, however busy the machine is."""
    from ray._private import parameter, services

    names = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", "dashboard_agent_listen_port")
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("", 0))) for _ in names]
        ports = {name: each.getsockname()[1] for name, each in zip(names, sockets)}
    start = services.start_ray_process

    class Named(parameter.RayParams):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **{**kwargs, **ports})

    def told(command, kind, *args, **kwargs): # Ray tells its raylet all of them but the last
        last = [f"--{names[-1]}={ports[names[-1]]}"] if kind == "raylet" else []
        return start([*command, *last], kind, *args, **kwargs)
    parameter.RayParams, services.start_ray_process = Named, told


class Replica:
    """The questions of verl's manager to a replica, noted with the time."""

    def __init__(self, worker):
        self.workers, self.calls = [worker], []

    def __getattr__(self, name):
        async def call(*args, **kwargs):
            self.calls.append((name, time.monotonic()))
        return call


@scenario
def the_manager_stages_before_it_pauses(lab):
    """P2: verl's manager on Ray, with two actors and two rollouts, and the one that does all but the copy
    before it pauses a replica."""
    import ray
    from verl.checkpoint_engine import CheckpointEngineManager
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, register
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
    from verl.workers.config import RolloutConfig

    class Actor(Worker):
        def __init__(self, config):
            super().__init__()
            import_external_libs(config.custom_backend_module)
            self.engine = CheckpointEngineRegistry.new(config.backend, bucket_size=1 << 20, is_master=self.rank == 0, **config.engine_kwargs["tombolo"])
            self.sends = []

        @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
        async def update_weights(self, global_steps=None, mode="auto"):
            self.sends.append((global_steps, time.monotonic()))
            return await self.engine.send_weights(iter(weights(global_steps).items()), global_steps=global_steps)

        @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
        def execute_checkpoint_engine(self, method, *args, **kwargs):
            return getattr(self.engine, method)(*args, **kwargs)

    class Rollout(CheckpointEngineWorker):
        def __init__(self, rollout_config, model_config):
            super().__init__(rollout_config, model_config, Server())

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def check(self, step):
            return self.server_adapter.step, same(self.server_adapter.got, weights(step)), self.checkpoint_engine._in.version()

    config_ = config(lab)
    name_ports()
    folder = os.open(lab.dir, os.O_PATH) # Ray's sockets need a short path
    ray.init(num_cpus=8, include_dashboard=False, object_store_memory=200 << 20, _node_ip_address="127.0.0.1", logging_level="ERROR",
             _temp_dir=f"/proc/{os.getpid()}/fd/{folder}/r", runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path[:4])}})
    try:
        def group(cls, name, **given):
            pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1, name_prefix=name)
            return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(cls), **given), device_name="cpu")
        actors = group(Actor, "actor", config=config_)
        rollouts = group(Rollout, "rollout", rollout_config=RolloutConfig(name="vllm", checkpoint_engine=config_), model_config=None)
        replicas = [Replica(worker) for worker in rollouts.workers]
        import_external_libs(config_.custom_backend_module)
        from tombolo.integrations.verl import CheckpointEngineManager as Ahead
        for step, manager in ((1, CheckpointEngineManager), (2, Ahead), (3, Ahead)):
            for replica in replicas:
                replica.calls.clear()
            metrics = manager(config=config_, actor_wg=actors, replicas=replicas).update_weights(global_steps=step)
            expect("metrics", (metrics["tombolo/version"], metrics["tombolo/bytes"] >= 65536), (step, True))
            expect(f"rollouts at {step}", rollouts.check(step), [(step, True, step)] * 2)
            expect("calls", [name for name, _ in replicas[0].calls],
                   ["abort_all_requests", "release_kv_cache", "resume_kv_cache", "resume_generation"])
            print(f"step {step} by {manager.__module__}: paused {1000 * (replicas[0].calls[-1][1] - replicas[0].calls[0][1]):.0f} ms, {metrics}", flush=True)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
