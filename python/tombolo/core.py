"""What an integration with a trainer or an engine needs: five calls.

    core = Core("policy", into=module)        # or boxes, or nothing
    core.publish_named(step, pairs)           # the trainer's side: pairs of (name, tensor), which need not stay
    core.stage(step)                          # the engine's side, while it serves
    core.apply(step)                          # in its pause
    core.version()                            # the step that the tensors hold
    core.close()"""

from collections.abc import Iterable, Mapping
from typing import Any

from .following import Follower
from .library import ActivateInfo
from .publishing import Publisher, named_copies
from .versions import Version


class Core:
    """Opens its sessions when a call needs them. options are those of Publisher and Follower."""

    def __init__(self, model: str, *, gateway: str | None = None, run: str | None = None, shard: tuple[int, int] | None = None,
                 into: Any = None, **options: Any) -> None:
        self.model, self._gateway, self._run, self._shard, self._into, self._options = model, gateway, run, shard, into, options
        self._publisher: Publisher | None = None
        self._follower: Follower | None = None
        self._memory: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<tombolo.Core {self.model}, version {self.version()}>"

    @property
    def follower(self) -> Follower:
        if self._follower is None:
            self._follower = Follower(self.model, self._into, gateway=self._gateway, **self._options)
        return self._follower

    def publish_named(self, step: int, named: Iterable[tuple[str, Any]], blobs: Mapping[str, Any] | None = None) -> Version:
        if self._publisher is None:
            self._publisher = Publisher(self.model, gateway=self._gateway, run=self._run, shard=self._shard)
        return self._publisher.publish(step, named_copies(named, self._memory), blobs=blobs)

    def stage(self, step: int, timeout: float | None = None) -> Version:
        """Returns when the step is whole here; at once where it is staged or active already."""
        for version in (self.follower.staged, self.follower.version):
            if version is not None and version.number == step:
                return version
        return self.follower.stage(step, timeout=timeout)

    def apply(self, step: int, timeout: float | None = 60) -> ActivateInfo | None:
        """None: the tensors hold it already. A step that is not staged is refused: stage() is not for
        the pause."""
        if self.version() == step:
            return None
        staged = self.follower.staged
        if staged is None or staged.number != step:
            raise ValueError(f"{self.model}: version {step} is not staged (staged: {staged.number if staged else 'none'}): call stage first")
        return self.follower.apply(timeout)

    def version(self) -> int | None:
        active = self._follower.version if self._follower is not None else None
        return None if active is None else active.number

    def close(self) -> None:
        for part in (self._publisher, self._follower):
            if part is not None:
                part.close()
        self._publisher = self._follower = None
