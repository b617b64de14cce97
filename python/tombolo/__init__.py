"""Tombolo from Python: publish and follow the versions of a model's weights.

    tombolo.publish("policy", step, module)                      # the trainer
    for version in tombolo.follow("policy", into=module): ...    # a reader, at any site

Tensors are those of torch (CPU or CUDA, any dtype, tied too) and numpy, or anything with DLPack or the
buffer protocol. Below these two stand Publisher and Follower, and Session, which has the calls of
include/tombolo/tombolo.h by the same names. Each failure of the library is a tombolo.Error with
.status (an int of status.h), .name ("timeout") and the library's own sentence. Calls release the GIL
while they block, and KeyboardInterrupt ends them."""

from .core import Core
from .files import load_files
from .following import Follower, follow
from .library import ACTIVATED, AGAIN, BAD_ARGUMENT, BAD_STATE, CANCELLED, COPY, DONE_BEFORE, END, EXACT, GATEWAY_AWAY, HOLDS, IN_PLACE
from .library import LATEST, LAYOUT_MISMATCH, MINIMUM, NEXT, NOT_FOUND, OK, PATCH, PROVE_ALWAYS, PROVE_ASKED, PROVE_NEVER, SHADOW
from .library import SWITCH, TIMEOUT, TOO_LARGE, WAIT_FOREVER
from .library import ActivateInfo, Again, Error, Forked, LibraryMissing, PublishInfo, RunInfo, Uid, VersionInfo, library_version
from .memory import Box, dtype_name
from .publishing import Publisher, close_publishers, publish
from .sessions import Item, Registration, Session, Subscription
from .versions import Version

__all__ = ["ACTIVATED", "AGAIN", "BAD_ARGUMENT", "BAD_STATE", "CANCELLED", "COPY", "DONE_BEFORE", "END", "EXACT", "GATEWAY_AWAY",
           "HOLDS", "IN_PLACE", "LATEST", "LAYOUT_MISMATCH", "MINIMUM", "NEXT", "NOT_FOUND", "OK", "PATCH", "PROVE_ALWAYS",
           "PROVE_ASKED", "PROVE_NEVER", "SHADOW", "SWITCH", "TIMEOUT", "TOO_LARGE", "WAIT_FOREVER", "ActivateInfo",
           "Again", "Box", "Core", "Error", "Follower", "Forked", "Item", "LibraryMissing", "PublishInfo", "Publisher", "Registration", "RunInfo", "Session", "Subscription", "Uid", "Version", "VersionInfo",
           "close_publishers", "dtype_name", "follow", "library_version", "load_files", "publish"]
