"""slime, and others that write versions as folders (miles' disk-delta): two hooks carry each folder to where engines read it.
docs/integrations/slime.md is the guide.

    --custom-update-weight-post-write-path tombolo.integrations.slime.post_write             # the trainer
    --sglang-custom-pull-weights-pre-read-hook tombolo.integrations.slime.pre_read           # the engine's host

TOMBOLO_MODEL, TOMBOLO_GATEWAY and TOMBOLO_WAIT_S (600) are read at each call."""

import contextlib
import fcntl
import mmap
import os
import pathlib
import re
import shutil
import sys
from typing import Any

from ..core import Core
from ..publishing import Publisher

_FOLDER = re.compile(r"weight_v(\d+)$")
_SMALL = 1 << 20 # files below it are blobs


def _model() -> str:
    return os.environ.get("TOMBOLO_MODEL", "policy")


def _folder(source: str | os.PathLike[str], step: int) -> pathlib.Path:
    return pathlib.Path(source, f"weight_v{step:06d}")


def _rank() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return int(os.environ.get("RANK", "0"))


def post_write(args: Any, version_dir: str, rollout_engines: Any = None) -> None:
    """Of the trainer's ranks the first publishes; by then the others have written. The call for the baseline names the
    folder above, in which there is nothing to publish."""
    match = _FOLDER.search(str(version_dir).rstrip("/"))
    if match is None or _rank() != 0:
        return
    tensors: dict[str, Any] = {}
    blobs: dict[str, bytes] = {}
    for path in sorted(pathlib.Path(version_dir).iterdir()):
        if path.suffix == ".tmp" or not path.is_file():
            continue
        if path.stat().st_size < _SMALL:
            blobs[path.name] = path.read_bytes()
            continue
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        tensors[path.name] = ("U8", (len(content),), content)
    if not blobs and not tensors:
        raise FileNotFoundError(f"{version_dir}: there is no file to publish")
    with Publisher(_model()) as publisher: # of a version: other files come with the next one
        publisher.publish(int(match[1]), tensors or [], blobs=blobs, timeout=600).wait_held(timeout=600)


def pre_read(source_dir: str, target_version: int) -> None:
    """Returns when the folders up to this version are in source_dir, whole and verified. Each folder is a change to the one
    before, so an engine that starts late gets those that it missed, as long as Tombolo keeps them."""
    source = pathlib.Path(source_dir)
    source.mkdir(parents=True, exist_ok=True)
    with (source / ".tombolo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX) # ranks of this host, and other engines of it
        there = [int(match[1]) for path in source.iterdir() if (match := _FOLDER.fullmatch(path.name))]
        first = max((step for step in there if step <= target_version), default=0) + 1
        if first > target_version:
            return
        with contextlib.closing(Core(_model())) as core: # of a call: another folder may ask for older steps
            for step in range(first, target_version + 1):
                _write(core, source, step)


def _write(core: Core, source: pathlib.Path, step: int) -> None:
    version = core.stage(step, float(os.environ.get("TOMBOLO_WAIT_S", "600")))
    scratch = source / f".weight_v{step:06d}.tmp"
    shutil.rmtree(scratch, ignore_errors=True) # of a process that was killed
    scratch.mkdir()
    for item in core.follower.items(version):
        if pathlib.PurePath(item.name).name != item.name:
            raise ValueError(f"{core.model} {step}: {item.name!r} is no file name")
        with (scratch / item.name).open("wb") as file:
            file.write(item.bytes or b"")
            file.flush()
            os.fsync(file.fileno())
    scratch.rename(_folder(source, step))
