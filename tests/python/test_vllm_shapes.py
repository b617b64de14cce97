"""The shapes that vLLM's interface had, as stubs: registration, and an update through each. Needs neither vLLM nor torch.

Covers: python/tombolo/integrations/vllm.py python/tombolo/integrations/vllm_classes.py python/tombolo/integrations/vllm_loader.py
Covers: python/tombolo/integrations/vllm_trainer.py
"""

import array
import contextlib
import dataclasses
import logging
import os
import sys
import types

import packages  # noqa: F401
from harness import PATIENCE_S, Failed, expect, main, scenario

import tombolo


class Factory:
    def __init__(self):
        self.engines = {}

    def register_engine(self, name, module, attribute):
        if name in self.engines:
            raise ValueError("already registered")
        self.engines[name] = (module, attribute)


class Base:
    """Each makes what it was told into the engine's own classes."""

    def parse_init_info(self, told):
        return self.init_info_cls(**told)

    def parse_update_info(self, told):
        return self.update_info_cls(**told)


class NewBase(Base):
    """Since the engine owns the loading: four phases."""

    def __init__(self, config, vllm_config, device, model):
        self.vllm_config, self.model = vllm_config, model


class OldBase(Base):
    """Up to 0.22: the worker loads, and reads the info's attributes."""

    def __init__(self, config, parallel_config):
        self.parallel_config = parallel_config


@dataclasses.dataclass
class TrainerInfo:
    rank: int = dataclasses.field(kw_only=True)

    @property
    def is_sender(self):
        return self.rank == 0


class TrainerEngine:
    def __init__(self, *, client, source=None, is_sender=True):
        self.client, self.source, self.is_sender = client, source, is_sender


class Client:
    """Of the engine, by whatever way. fails: once it was started, each call does."""

    def __init__(self):
        self.told, self.fails = [], False

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.told.append((name, *args, *kwargs.values()))
            if self.fails and name != "start_weight_update":
                raise OSError(f"{name} fails")
        return call


def stub(base, *factories, has_loaders=True):
    """Modules named as those of vLLM, with that much in them. base: of the weight transfer engine, None where there is none."""
    for name in [name for name in sys.modules if name.startswith(("vllm", "tombolo.integrations.vllm"))]:
        del sys.modules[name]

    def module(name, **content):
        sys.modules[name] = made = types.ModuleType(name)
        vars(made).update(content, __path__=[])
    loaders = {}

    def register_model_loader(name):
        return lambda loader: loaders.setdefault(name, loader)
    for name in ("vllm", "vllm.model_executor", "vllm.distributed"):
        module(name)
    if base is not None:
        basics = types.SimpleNamespace(WeightTransferEngine=base, TrainerInitInfo=TrainerInfo,
                                       TrainerWeightTransferEngine=TrainerEngine)
        module("vllm.distributed.weight_transfer", base=basics, **{name: factory for name, factory in factories})
    if has_loaders:
        module("vllm.model_executor.model_loader", register_model_loader=register_model_loader, _LOAD_FORMAT_TO_MODEL_LOADER=loaders)
        module("vllm.model_executor.model_loader.base_loader", BaseModelLoader=object)
    return loaders


@scenario
def a_plugin_is_registered_once_in_each_shape(lab):
    """P10: vLLM calls register() again and again, in old and new versions, and where there is nothing to register."""
    for base in (NewBase, OldBase):
        engines, trainers = Factory(), Factory()
        loaders = stub(base, ("WeightTransferEngineFactory", engines), ("WeightTransferTrainerFactory", trainers))
        from tombolo.integrations import vllm
        for _ in range(2):
            vllm.register()
        expect("engine", engines.engines, {"tombolo": ("tombolo.integrations.vllm_classes", "Engine")})
        expect("trainer", trainers.engines, {"tombolo": ("tombolo.integrations.vllm_trainer", "Trainer")})
        expect("loader", list(loaders), ["tombolo"])
    loaders = stub(None)
    from tombolo.integrations import vllm
    vllm.register()
    expect("a loader without weight transfer", list(loaders), ["tombolo"])
    loaders = stub(None)
    del sys.modules["vllm.model_executor.model_loader.base_loader"]
    from tombolo.integrations import vllm
    vllm.register()
    expect("another place of its base", list(loaders), [])
    stub(None, has_loaders=False)
    from tombolo.integrations import vllm
    vllm.register()


@scenario
def lines_of_the_log_go_where_those_of_vllm_go(lab):
    """P10: vLLM gives no logger but its own a place, and a worker's ways are said at INFO. The user's settings stay."""
    stub(NewBase)
    from tombolo.integrations import vllm
    theirs, ours = logging.getLogger("vllm"), logging.getLogger("tombolo")
    vllm.register()
    expect("nowhere, as vLLM", (ours.handlers, ours.propagate), ([], True))
    theirs.handlers = [logging.FileHandler(lab.dir / "vllm.log")]
    theirs.setLevel("INFO")
    for _ in range(2):
        vllm.register()
    logging.getLogger("tombolo.layouts").info("layout.way way=boxes")
    expect("once", (lab.dir / "vllm.log").read_text(), "layout.way way=boxes\n")
    theirs.handlers = []
    vllm.register()
    expect("stays", len(ours.handlers), 1)


@scenario
def a_worker_that_loads_by_itself_gets_tensors_by_name(lab):
    """P1 P2: the shape before the engine owned the loading."""
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=4)
    site.start()
    os.environ["TOMBOLO_GATEWAY"] = f"unix:{site.session_socket}"
    stub(OldBase, ("WeightTransferEngineFactory", Factory()))
    from tombolo.integrations import vllm_classes
    engine = vllm_classes.Engine(object(), types.SimpleNamespace(rank=0, world_size=1))
    tombolo.publish("policy", 3, {"w": array.array("B", b"12345678")}, run="key")
    engine.init_transfer_engine(engine.parse_init_info({"model": "policy", "later": 1}))
    info = engine.parse_update_info({"version": 3, "later": 1})
    loaded = {}
    expect("what the worker reads", info.is_checkpoint_format, True)
    engine.receive_weights(info, load_weights=lambda pairs: loaded.update((name, bytes(tensor)) for name, tensor in pairs))
    expect("loaded", loaded, {"w": b"12345678"})
    expect("version", engine.tombolo.version(), 3)
    engine.receive_weights({"version": 3}, load_weights=lambda pairs: expect("it has that one", True, False))
    made = engine.tombolo
    engine.init_transfer_engine({"model": "policy", "timeout_s": 7, "later": 2})
    expect("the same once more", (engine.tombolo is made, made.version(), made.timeout_s), (True, 3, 7))
    engine.init_transfer_engine({"model": "policy", "group": "another", "session": {"name": "me"}})
    expect("another", (engine.tombolo is made, engine.tombolo.version(), made.core), (False, None, None))
    engine.shutdown()
    os.environ["TOMBOLO_GATEWAY"] = f"unix:{lab.dir}/nobody.sock"
    from tombolo.integrations import vllm, vllm_loader
    loader = vllm_loader.Loader()
    told = {"version": 3, "gateway": f"unix:{site.session_socket}"}
    loader.load_config = types.SimpleNamespace(load_format="tombolo", model_loader_extra_config=told)
    kept = list(loader.get_all_weights(None, None))
    kept = [(name, bytes(tensor)) for name, tensor in kept]
    expect("tensors that a loader keeps", kept, [("w", b"12345678")])
    worker = vllm.Extension()
    worker.vllm_config = types.SimpleNamespace(load_config=loader.load_config)
    expect("what it started from", worker.tombolo_version(), 3)
    worker.tombolo = types.SimpleNamespace(version=lambda: 4)
    expect("what it got", worker.tombolo_version(), 4)
    worker.tombolo, worker.vllm_config.load_config.load_format = None, "auto"
    expect("none", worker.tombolo_version(), None)
    loader.load_config.model_loader_extra_config = {"gateway": told["gateway"]}
    try:
        list(loader.get_all_weights(None, None))
        raise Failed("nothing was raised")
    except TypeError as error:
        expect("what is missing", "'version'" in str(error), True)
    tombolo.close_publishers()


class Temporary(array.array):
    """As much of a tensor as publishing copies."""

    dtype, shape = "uint8", (8,)

    def copy(self):
        return Temporary("B", self)

    def __setitem__(self, at, value):
        super().__setitem__(slice(None) if at is Ellipsis else at, value)


@scenario
def a_trainer_publishes_and_the_engine_changes_over(lab):
    """P2 P10: each rank walks through the weights, and one sends them. An update that fails closes
    the sessions of ranks that did not raise, and says its own error."""
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=4)
    site.start()
    stub(NewBase)
    from tombolo.integrations import vllm_trainer
    client, walked = Client(), []

    def source():
        walked.append(5)
        yield "w", Temporary("B", b"12345678")
    told = {"gateway": f"unix:{site.session_socket}", "run": "key"}
    trainers = [vllm_trainer.Trainer.trainer_init(
        vllm_trainer.TrainerInit(rank=rank, step=4, trainer=told, engine={"timeout_s": 5}), client=client, source=source())
        for rank in (1, 0)]
    expect("rank 0 opens it", client.told, [("init_weight_transfer_engine", {"model": "policy", "timeout_s": 5})])
    client.told = []
    trainers[0].send_weights()
    expect("another rank", (walked, client.told), ([5], []))
    trainers[1].send_weights()
    start, change = ("start_weight_update",), ("update_weights", {"version": 5})
    expect("told", (walked, client.told), ([5, 5], [start, change, ("finish_weight_update", "5")]))
    client.told, client.fails, trainers[1].source = [], True, source()
    try:
        trainers[1].send_weights()
        raise Failed("nothing was raised")
    except OSError as error:
        expect("its own error", str(error), "update_weights fails")
    expect("closed", client.told, [start, ("update_weights", {"version": 6}), ("finish_weight_update",)])
    with contextlib.closing(tombolo.Core("policy", gateway=told["gateway"])) as core:
        core.stage(6, PATIENCE_S)
        expect("published", [bytes(tensor) for _, tensor in core.named(6)], [b"12345678"])
    for trainer in trainers:
        trainer.shutdown()


@scenario
def an_engine_starts_from_its_nearest_source(lab):
    """P1 P2 P10: a version that its own site holds comes from there, also while nothing comes from the trainer's. A tensor that no source has is
    refused."""
    east, west, link = lab.east_west(keep=4)
    east.start()
    west.start()
    content = bytes(range(256)) * 64
    tensors, of_east = {"w": array.array("B", content)}, f"unix:{east.session_socket}"
    tombolo.publish("policy", 3, tensors, gateway=of_east, run="key").wait_held("west", PATIENCE_S)
    link.stalled = True
    stub(NewBase)
    from tombolo.integrations import vllm_loader
    loader, told = vllm_loader.Loader(), {"version": 3, "gateway": f"unix:{west.session_socket}"}
    loader.load_config = types.SimpleNamespace(model_loader_extra_config=told)
    loaded = [(name, bytes(tensor)) for name, tensor in loader.get_all_weights(None, None)]
    expect("loaded", loaded, [("w", content)])
    told.update(version=4, timeout_s=0.2)
    try:
        list(loader.get_all_weights(None, None))
        raise Failed("version 4 was loaded")
    except tombolo.Error as error:
        expect(str(error), "policy 4" in str(error), True)
    link.stalled = False
    tombolo.close_publishers()


class Ranks:
    """Two ranks' answers in one place: what the others said."""

    rank, ranks = 0, 2

    def __init__(self, others):
        self.others = others

    def gather(self, mine):
        return [mine, self.others.pop(0)] if self.rank == 0 else [self.others.pop(0), mine]


@scenario
def the_last_rank_alone_raises(lab):
    """P10: replies behind the first error would be taken for those of later calls. That is so too where all ranks
    have the same error."""
    stub(OldBase, ("WeightTransferEngineFactory", Factory()))
    from tombolo.integrations import replica, vllm, vllm_classes
    vllm.Worker.gather = lambda worker, mine: [mine, mine]
    for rank, is_last in ((0, False), (1, True)):
        ranks = Ranks([(None, "OSError: of the other rank")])
        ranks.rank = rank
        calls = vllm.Calls()
        calls.tombolo = replica.Replica("policy", None, ranks)
        try:
            parallel = types.SimpleNamespace(rank=rank, world_size=2)
            said = calls.tombolo_do(parallel, lambda to: to.together("try", lambda: 5))
            expect("quiet", (said, is_last), (None, False))
        except replica.Failed as error:
            expect("raised", (is_last, f"rank {1 - rank}: OSError: of the other rank" in str(error)), (True, True))
        for call in (lambda engine: engine.init_transfer_engine({"timeout_s": "soon"}), lambda engine: engine.receive_weights({"version": 1}),
                     lambda engine: engine.receive_weights({}), lambda engine: engine.receive_weights({"version": "new"})):
            try:
                call(vllm_classes.Engine(object(), types.SimpleNamespace(rank=rank, world_size=2)))
                expect("quiet", is_last, False)
            except (ValueError, RuntimeError):
                expect("raised", is_last, True)
    try:
        vllm.Calls().tombolo_do(types.SimpleNamespace(rank=0, world_size=1), lambda to: to.update(1))
        raise Failed("nothing was raised")
    except RuntimeError as error:
        expect("what to do", "init_weight_transfer_engine" in str(error), True)


@scenario
def ranks_have_the_name_of_their_first_one(lab):
    """P2: an engine over two hosts is one reader group, also beside others of its world."""
    stub(NewBase)
    from tombolo.integrations import vllm

    class Second(vllm.Worker):
        def gather(self, mine):
            return [("7-0", "host-a"), ("7-0", "host-b"), ("7-1", "host-c"), mine]
    parallel = types.SimpleNamespace(rank=1, world_size=2, data_parallel_index=1)
    worker = Second(None, types.SimpleNamespace(parallel_config=parallel, instance_id="7"), None)
    expect("group", (worker.rank, worker.ranks, worker.group), (1, 2, "vllm-host-c-7-1"))


if __name__ == "__main__":
    sys.exit(main())
