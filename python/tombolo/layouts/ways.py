"""Which way each layer of an engine gets a new version.

boxes      the layer's parameters stand as its loader left them, and the dry run knows where each element goes: the
           library writes into the live parameters
named      they stand so, and a step of the loader reads values: the loader writes into the live parameters
layerwise  the engine computes something of its own from the layer's weights after they are loaded (it repacks, quantises
           or keeps copies): the engine's reload of single layers does it again"""

import logging
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..memory import Box

if TYPE_CHECKING:
    from .loader import Plan

log = logging.getLogger("tombolo.layouts")


class Ways(NamedTuple):
    boxes: list[Box]      # into the live parameters
    named: list[str]      # checkpoint names that go through the loader
    layerwise: list[Any]  # modules that the engine reloads
    of: dict[str, str]    # layer: its way


def _holders(model: Any) -> dict[int, list[str]]:
    """{id of a parameter: its modules}: a tied one has several."""
    held: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in (*module._parameters.values(), *module._buffers.values()):
            if parameter is not None:
                held.setdefault(id(parameter), []).append(name)
    return held


def _in_short(layers: list[str]) -> str:
    """model.layers.0-79.mlp: names that differ in their numbers alone, none of which is left out."""
    alike: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for layer in layers:
        split = re.split(r"\b(\d+)\b", layer)
        alike.setdefault(tuple(split[::2]), []).append(tuple(map(int, split[1::2])))
    said = list[str]()
    for words, numbers in alike.items():
        ends = [(min(column), max(column)) for column in zip(*numbers, strict=True)]
        whole = math.prod(last - first + 1 for first, last in ends) == len(numbers)
        for row in ([[f"{a}-{b}" if a < b else f"{a}" for a, b in ends]] if whole else numbers):
            said.append("".join(map("{}{}".format, words, [*row, ""])))
    return ",".join(said)


def choose(model: Any, plan: "Plan", computes: Callable[[Any], bool]) -> Ways:
    """computes(module): the engine computes something from its weights after loading. Such modules are reloaded
    even where no tensor of the checkpoint is theirs: what they keep may come of another layer's weights."""
    modules, held = dict(model.named_modules()), _holders(model)
    tensors = {**dict(model.named_buffers(remove_duplicate=False)), **dict(model.named_parameters(remove_duplicate=False))}
    filled: dict[str, int] = {}
    takers: dict[str, set[str]] = {} # checkpoint name: modules
    for target in plan.targets:
        filled[target.parameter] = filled.get(target.parameter, 0) + target.box.tensor.numel()
        takers.setdefault(target.box.name, set()).update(held[id(tensors[target.parameter])])
    computed = {name for name, module in modules.items() if computes(module)}
    for layers in held.values(): # a tied tensor is given once, and each of its layers has to see it
        if computed.intersection(layers):
            computed.update(layers)
    by_name = set(computed)
    if plan.named: # nobody knows where those go: layers that lack elements are suspected
        by_name |= {layer for path, tensor in tensors.items() if filled.get(path, 0) < tensor.numel() for layer in held[id(tensor)]}
    named = set(plan.named)
    while True: # a fused layer goes one way, with all its tensors, and so do layers that share one
        more = {name for name, layers in takers.items() if layers & by_name} - named
        if not more:
            break
        named |= more
        by_name |= {layer for name in more for layer in takers[name]}
    owners = {layer for layers in held.values() for layer in layers}
    of = {name: "layerwise" if name in computed else "named" if name in by_name else "boxes" for name in modules if name in owners or name in computed}
    for way in ("boxes", "named", "layerwise"):
        layers = [layer for layer, its in of.items() if its == way]
        log.info("layout.way way=%s layers=%d which=%s", way, len(layers), _in_short(layers))
    return Ways([target.box for target in plan.targets if target.box.name not in named], sorted(named),
                [module for name, module in modules.items() if name in computed], of)
