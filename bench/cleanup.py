"""However the bench ends, nothing of it stays: folders (in /tmp and /dev/shm), processes, namespaces of its own.

Its folders and what it starts say which process they belong to (sim/leavings.py). A watchdog in a session of its own waits until the bench is
gone; should both be killed, the next start clears what is left. Labs of sim/wan have a watchdog of their own."""

import os
import shutil

import leavings
import veth

KIND = "tombolo-bench"


def clear(prefix):
    """Takes down all that a bench which is gone has left."""
    leavings.end_all(lambda: leavings.marked(*leavings.mark_of(prefix)))
    if os.geteuid() == 0 and shutil.which("ip"):
        veth.take_down_orphans()
    leavings.clear_folders(prefix)


def clear_orphans():
    leavings.clear_orphans(KIND, clear)


def watch():
    """(prefix of this process's folders, done): a child clears up unless done() is called first."""
    prefix = leavings.prefix_of(KIND, os.getpid())
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        wait_and_clear(ours, prefix)
    os.close(ours)
    os.environ.update([leavings.mark_of(prefix)])

    def done():
        os.write(theirs, b"d")
        os.close(theirs)
        os.waitpid(child, 0)
    return prefix, done


def wait_and_clear(ours, prefix):
    """The watchdog, which does not return."""
    try:
        leavings.become_watchdog(ours)
        if os.read(ours, 1) != b"d":
            clear(prefix)
    finally:
        os._exit(0)
