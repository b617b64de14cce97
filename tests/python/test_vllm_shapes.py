"""The shapes that vLLM's interface had, as stubs: registration, and an update through each. Needs neither vLLM nor torch.

Covers: python/tombolo/integrations/vllm.py python/tombolo/integrations/vllm_classes.py python/tombolo/integrations/vllm_loader.py
"""

import array
import os
import sys
import types

import packages  # noqa: F401
from harness import Failed, expect, main, scenario

import tombolo


class Factory:
    def __init__(self):
        self.engines = {}

    def register_engine(self, name, module, attribute):
        if name in self.engines:
            raise ValueError("already registered")
        self.engines[name] = (module, attribute)


class NewBase:
    """Since the engine owns the loading: four phases."""

    def __init__(self, config, vllm_config, device, model):
        self.vllm_config, self.model = vllm_config, model


class OldBase:
    """Up to 0.22: the worker loads, and reads the info's attributes."""

    def __init__(self, config, parallel_config):
        self.parallel_config = parallel_config


def stub(base, *factories, has_loaders=True):
    """Modules named as those of vLLM, with that much in them. base: of the weight transfer engine, None where there is none."""
    for name in [name for name in sys.modules if name.startswith(("vllm", "tombolo.integrations.vllm"))]:
        del sys.modules[name]

    def module(name, **content):
        sys.modules[name] = made = types.ModuleType(name)
        vars(made).update(content, __path__=[])
    loaders = {}

    def register_model_loader(name):
        return lambda loader: loaders.update({name: loader})
    for name in ("vllm", "vllm.model_executor", "vllm.distributed"):
        module(name)
    if base is not None:
        basics = types.SimpleNamespace(WeightTransferEngine=base)
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
    engine.init_transfer_engine({"model": "policy", "timeout_s": 7})
    expect("the same once more", (engine.tombolo is made, made.version(), made.timeout_s), (True, 3, 7))
    engine.init_transfer_engine({"model": "policy", "group": "another", "session": {"name": "me"}})
    expect("another", (engine.tombolo is made, engine.tombolo.version(), made.core), (False, None, None))
    engine.shutdown()
    os.environ["TOMBOLO_GATEWAY"] = f"unix:{lab.dir}/nobody.sock"
    from tombolo.integrations import vllm, vllm_loader
    loader = vllm_loader.Loader()
    loader.load_config = types.SimpleNamespace(model_loader_extra_config={"version": 3, "gateway": f"unix:{site.session_socket}"})
    kept = list(loader.get_all_weights(None, None))
    expect("tensors that a loader keeps", ([(name, bytes(tensor)) for name, tensor in kept], vllm.started), ([("w", b"12345678")], {"policy": 3}))
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
    for rank, is_last in ((0, False), (1, True)):
        ranks = Ranks([(None, "OSError: of the other rank")])
        ranks.rank = rank
        calls = vllm.Calls()
        calls.tombolo = replica.Replica("policy", None, ranks)
        try:
            said = calls.tombolo_call(None, lambda calls=calls: calls.opened().together("try", lambda: 5))
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
        vllm.Calls().opened()
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
