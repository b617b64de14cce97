"""A model in an engine's worker, and how it gets from one version to the next: what integrations
with engines share.

All ranks of an engine make the same calls. Nothing of the model is touched before each rank has
the version whole and verified; a version that cannot be loaded leaves the one before in place."""

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..core import Core
from ..memory import Box
from ..versions import Version

if TYPE_CHECKING:
    from ..layouts.ways import Ways

log = logging.getLogger("tombolo.integrations")
_OF_READERS = ("group", "member", "update", "second", "gather", "stage_on_gpu") # options of Core; the others are the session's and the proof's


def part(module: str, name: str) -> Any:
    """Of a framework. None: this one has no such thing."""
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(module), name, None)
    return None


def log_as(framework: str) -> None:
    """Lines of tombolo's loggers go where the framework's go, if nobody gave them another place."""
    ours, theirs = logging.getLogger("tombolo"), logging.getLogger(framework)
    if not ours.handlers and theirs.handlers:
        ours.handlers, ours.propagate = theirs.handlers[:], False
        ours.setLevel(theirs.level)


def version_of(told: Mapping[str, Any] | None) -> int:
    if not told or "version" not in told:
        raise ValueError(f'tombolo: an update is told {{"version": N}}, and not {told or None}')
    return int(told["version"])


class Failed(RuntimeError):
    """On each rank."""


def raised_by_the_last(rank: int, ranks: int, call: Callable[[], Any]) -> Any:
    """The result of the call, whose errors are the same on all ranks; None on those that keep
    theirs. An engine that reads the replies of its ranks in order leaves those behind the first
    error unread, and takes them for replies to later calls."""
    try:
        return call()
    except Exception as error:
        if rank == ranks - 1:
            raise
        if not isinstance(error, Failed): # else it was logged where it came from
            log.warning("replica.failed rank=%d what=call why=%s", rank, error, exc_info=True)
        return None


class Engine:
    """The calls that a Replica makes to its engine. Each method has a default that suits one rank and a
    plain loader."""

    rank, ranks = 0, 1
    model: Any = None

    def process_group(self) -> Any:
        """torch's, on CPUs, where there are several ranks. It may have those of other engines
        too."""
        raise NotImplementedError

    def gather(self, mine: Any) -> list[Any]:
        """The result of each rank."""
        if self.ranks == 1:
            return [mine]
        distributed, group = importlib.import_module("torch.distributed"), self.process_group()
        said: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(said, mine, group=group)
        return said

    def computes(self, module: Any) -> bool:
        """The engine computes something from the module's weights after they are loaded."""
        return False

    def load(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self.model.load_weights(pairs)

    def begin_reload(self, modules: list[Any]) -> None:
        """Modules that compute something get their weights next."""

    def end_reload(self, modules: list[Any]) -> None:
        """They have them, or did not get any."""

    def first_weights(self) -> Iterable[tuple[str, Any]]:
        """Of the checkpoint that the engine started from."""
        raise RuntimeError("the weights that the engine started from cannot be read again")


class Replica:
    """model: a torch module; None: the engine's loader does all of it, and everything goes by
    name. timeout_s: how long a version that is named may take to be whole here. options are
    those of Core."""

    def __init__(self, name: str, model: Any, engine: Engine, /, *, gateway: str | None = None, timeout_s: float = 60, **options: Any) -> None:
        self.name, self.model, self._engine, self.timeout_s = name, model, engine, timeout_s
        self._gateway, self._options = gateway, {"member": (engine.rank, engine.ranks), **options}
        self._told = (name, model, vars(engine), gateway, options)
        self.core: Core | None = None
        self.ways: Ways | None = None
        self._broken = False # what the model holds is no version
        self._staged_last: Version | None = None
        self._copied: list[Box] = []
        self._manifest: dict[str, tuple[str, tuple[int, ...]]] = {} # that the ways were chosen for

    @classmethod
    def told(cls, info: Mapping[str, Any], engine: Engine, group: str) -> "Replica":
        """info: "model", "gateway", "timeout_s", "group" (else the one given here), and
        "session": more options. Other keys are not read."""
        options = {"gateway": info.get("gateway"), "group": info.get("group", group), **(info.get("session") or {})}
        timeout_s = float(info.get("timeout_s", 60))
        return cls(info.get("model", "policy"), engine.model, engine, timeout_s=timeout_s, **options)

    def instead(self, before: "Replica | None") -> "Replica":
        """The one before with its version, where it was told the same; else this one, and the
        one before is closed."""
        if before is not None and before._told == self._told:
            before.timeout_s = self.timeout_s
            return before
        if before is not None:
            before.together("close the one before", before.close)
        return self

    def together(self, what: str, call: Callable[[], Any]) -> list[Any]:
        """The call's result on each rank. Where it failed on one, Failed is raised on all."""
        result, why = None, None
        try:
            result = call()
        except Exception as error: # whatever it is, the other ranks have to know
            log.warning("replica.failed model=%s rank=%d what=%s why=%s", self.name, self._engine.rank, what, error, exc_info=True)
            why = f"{type(error).__name__}: {error}"
        said = self._engine.gather((result, why))
        failed = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(said) if text is not None]
        if failed:
            raise Failed(f"tombolo: {self.name}: cannot {what}: {'; '.join(failed)}")
        return [given for given, _ in said]

    # ---- which way each layer gets its weights: once, from the first version that is there ----

    def _ask(self, call: Callable[[Core], Any]) -> Any:
        """By rank 0 alone, which tells the others."""
        if self._engine.rank != 0:
            return None
        options = {name: value for name, value in self._options.items() if name not in _OF_READERS}
        with contextlib.closing(Core(self.name, gateway=self._gateway, **options)) as core:
            return call(core)

    def open(self) -> None:
        """Looks at the newest version, where there is one already."""
        step = self.together("look for a version", lambda: self._ask(Core.newest))[0]
        if step is not None:
            self._plan(step)

    def _plan(self, step: int) -> Core:
        if self.core is None:
            self._manifest = self.together(f"read version {step}", lambda: self._ask(lambda core: core.kinds(step, self.timeout_s)))[0]
            made: list[Core] = []
            self.together(f"find the ways of version {step}", lambda: made.append(self._choose()))
            self.core = made[0] # now that each rank has one
        return self.core

    def _choose(self) -> Core:
        if self.model is not None:
            from ..layouts import loader, ways # they import torch

            self.ways = ways.choose(self.model, loader.dry_run(self.model, self._manifest, self._engine.load), self._engine.computes)
        # Where all are boxes the library stages them alone, and writes them. Else whole tensors are
        # staged.
        into = self.ways.boxes if self.ways is not None and not self.ways.named else None
        self._copied = [] if self.ways is None or into is not None else self.ways.boxes
        # Boxes are those of the version that was named, which may not be the newest.
        return Core(self.name, gateway=self._gateway, into=into, check=False, **self._options)

    # ---- from version to version ----

    def begin(self, step: int) -> bool:
        """While the engine serves. It does not wait: True once the version is whole here and
        verified, on all ranks."""
        core = self._plan(step)
        return all(self.together(f"stage version {step}", lambda: core.begin(step)))

    def update(self, step: int, load: Any = None) -> None:
        """In the engine's pause. load: instead of the engine's own loader."""
        core = self._plan(step)
        before = self.version()
        if self._is_active(step, self.together(f"stage version {step}", lambda: self._staged(core, step))) and not self._broken:
            return
        modules = self.ways.layerwise if self.ways is not None else []
        try:
            self.together("begin", lambda: self._engine.begin_reload(modules))
            self.together(f"load version {step}", lambda: self._load(core.named(self._staged_last), load))
            self.together(f"apply version {step}", lambda: self._apply(core, step))
        except Failed as error:
            with contextlib.suppress(Exception): # half of a layer may be there; it is loaded again
                self._engine.end_reload(modules)
            self._go_back(core, f"go back to version {before if before is not None else 'of the start'}", modules, load, error)
            raise
        self._broken = True # where a rank cannot finish
        self.together(f"finish version {step}", lambda: self._engine.end_reload(modules))
        self._broken = False

    def _is_active(self, step: int, ranks: list[tuple[str, bool]]) -> bool:
        """By what all ranks said, so that all go the same way: of the version, which is one of
        several runs' perhaps, and whether the rank computes from it."""
        if len(set(ranks)) == 1:
            return ranks[0][1]
        said = ", ".join(f"rank {rank}: {'active' if active else 'staged'} {uid}" for rank, (uid, active) in enumerate(ranks))
        what = "this replica is broken until it gets another version" if any(active for _, active in ranks) else "a newer run has the number: ask again"
        self._broken = self._broken or any(active for _, active in ranks)
        raise Failed(f"tombolo: {self.name}: ranks have different versions {step} ({said}): {what}")

    def _staged(self, core: Core, step: int) -> tuple[str, bool]:
        version = self._staged_last = core.stage(step, self.timeout_s) # a newer run may get the number at any time
        there = core.manifest(version)
        for name, (dtype, shape) in self._manifest.items():
            other = there.get(name)
            if other != (dtype, shape):
                raise ValueError(f"{name}: this engine's is {dtype}{list(shape)}, and version {step} has "
                                 f"{'no such tensor' if other is None else f'{other[0]}{list(other[1])}'}")
        return str(version.uid), version == core.follower.version

    def _load(self, pairs: Iterable[tuple[str, Any]], load: Any) -> None:
        if self.ways is None or self.ways.named:
            wanted = None if self.ways is None else set(self.ways.named)
            (load or self._engine.load)((name, tensor) for name, tensor in pairs if wanted is None or name in wanted)

    def _copy(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The pairs, of which boxes that the library does not write get their parts."""
        boxes: dict[str, list[Box]] = {}
        for box in self._copied:
            boxes.setdefault(box.name, []).append(box)
        for name, tensor in pairs:
            for box in boxes.get(name, ()):
                box.tensor.copy_(tensor[tuple(slice(f, f + n) for f, n in zip(box.first, box.count, strict=True))])
            yield name, tensor

    def _apply(self, core: Core, step: int) -> None:
        core.apply(step, self.timeout_s)
        if self._copied:
            for _ in self._copy(core.named(core.follower.version)):
                pass

    def _go_back(self, core: Core, what: str, modules: list[Any], load: Any, why: Failed) -> None:
        """The text of a failure names what is left broken, and why it had to go back."""
        try:
            if len(set(self.together(what, lambda: self._back(core, modules, load)))) != 1:
                raise Failed(f"tombolo: {self.name}: cannot {what}: ranks hold different versions")
        except Failed as error:
            self._broken = True
            raise Failed(f"{why}; {error}: this replica is broken until it gets a version") from None

    def _back(self, core: Core, modules: list[Any], load: Any) -> str | None:
        """To what this rank holds, whatever it is: an update that failed behind its last step is
        at the new one."""
        held = core.follower.version
        self._engine.begin_reload(modules)
        try:
            if self.ways is None or self.ways.named: # else the library alone writes
                pairs = self._copy(core.named(held) if held is not None else self._engine.first_weights())
                self._load(pairs, load)
                for _ in pairs: # that the loader left
                    pass
        finally:
            self._engine.end_reload(modules)
        return None if held is None else str(held.uid)

    def version(self) -> int | None:
        return self.core.version() if self.core is not None else None

    def close(self) -> None:
        core, self.core = self.core, None
        if core is not None:
            core.close()
