"""Trainers after a failure, by stubs of verl and transformers: a number is not given twice, and ranks stay together.

Covers: python/tombolo/integrations/verl.py python/tombolo/integrations/trl.py
"""

import asyncio
import sys
import types

import packages  # noqa: F401
from harness import Failed, expect, main, scenario


class Out:
    """A Core that publishes nothing. fails: what a call of publish_named, or then wait_held, raises."""

    def __init__(self, *fails):
        self.fails, self.published = list(fails), []

    def call(self, what):
        if self.fails and self.fails[0] == what:
            self.fails.pop(0)
            raise OSError(what)

    def publish_named(self, step, pairs):
        next(iter(pairs))
        self.call("publish")
        self.published.append(step)
        return types.SimpleNamespace(number=step, bytes=8, wait_held=lambda *_, **__: self.call("held"))


def module(name, **content):
    sys.modules[name] = made = types.ModuleType(name)
    vars(made).update(content, __path__=[])


def raised(call):
    try:
        call()
    except OSError as error:
        return str(error)
    raise Failed("nothing was raised")


def ranks_of_verl():
    """Two of them, and what says which one is at work."""
    at = types.SimpleNamespace(rank=0, said=None)

    def broadcast_object_list(said, src):
        if at.rank == src:
            at.said = said[0]
        said[0] = at.said
    module("torch")
    module("torch.distributed", is_initialized=lambda: True, get_world_size=lambda: 2, broadcast_object_list=broadcast_object_list)
    registry = types.SimpleNamespace(register=lambda name: lambda made: made)
    module("ray")
    for name in ("verl", "verl.single_controller", "verl.utils"):
        module(name)
    module("verl.checkpoint_engine", base=types.SimpleNamespace(CheckpointEngineRegistry=registry, CheckpointEngine=object, CheckpointEngineManager=object))
    module("verl.single_controller.ray", RayClassWithInitArgs=None, RayWorkerGroup=None)
    module("verl.utils.ray_utils", auto_await=lambda call: call)
    from tombolo.integrations import verl
    return [verl.CheckpointEngine(is_master=rank == 0) for rank in range(2)], at


@scenario
def ranks_of_a_trainer_send_again_together(lab):
    """P10: where rank 0 fails the others walk once more with it. All walk to the end, as they gather together."""
    engines, at = ranks_of_verl()
    engines[0]._out = out = Out("publish", "held")

    def send():
        """How many pairs each rank walked, and what rank 0 raised."""
        walked, why = [0, 0], None

        def walk(rank):
            for name in "abc":
                walked[rank] += 1
                yield name, None
        for at.rank in (0, 1):
            try:
                asyncio.run(engines[at.rank].send_weights(walk(at.rank), global_steps=5))
            except OSError as error:
                why = str(error)
        return walked, why
    expect("not published", send(), ([3, 3], "publish"))
    expect("not held", send(), ([3, 3], "held"))
    expect("held, and published once", (send(), out.published), (([3, 3], None), [5]))
    expect("sent already", send(), ([0, 0], None))
    for name in [name for name in sys.modules if name.startswith(("torch", "verl", "ray"))]:
        del sys.modules[name]


@scenario
def a_number_of_trl_is_given_once(lab):
    """P10: a sealed version has its number, whatever fails behind it."""
    module("transformers", TrainerCallback=object)
    from tombolo.integrations import trl
    told = []

    def switch(step):
        told.append(step)
        if step == 2:
            raise OSError("switch")
    transfer = trl.WeightTransfer("policy", switch=switch)
    transfer._core = out = Out("publish", "held")
    transfer.resume()  # nothing was sent
    weights = [("w", None)]
    expect("not sealed", raised(lambda: transfer.send_weights(weights)), "publish")
    expect("sealed, not held", raised(lambda: transfer.send_weights(weights)), "held")
    transfer.send_weights(weights)
    expect("not switched", raised(transfer.resume), "switch")
    transfer.send_weights(weights)
    transfer.resume()
    expect("numbers", (out.published, told), ([1, 2, 3], [2, 3]))


if __name__ == "__main__":
    sys.exit(main())
