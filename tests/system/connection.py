"""A TCP connection of another process, by a descriptor that it shares with us: what is set on it
holds there."""

import contextlib
import ctypes
import errno
import os
import socket
import struct

from harness import Skipped

SYS_PIDFD_GETFD = 438
ATTACH_FILTER, DETACH_FILTER, MAX_PACING_RATE = 26, 27, 47  # SO_*
ACKED_AT, RECEIVED_AT = 120, 128  # bytes, where tcp_info has them
DROP = struct.pack("=HBBI", 0x06, 0, 0, 0)  # a program for packets: of each, nothing


class Connection:
    def __init__(self, owned):
        self.socket = owned

    @classmethod
    def of(cls, pid):
        """All that have moved a MiB, either way."""
        found, libc, process = [], ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
        sockets = []
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    sockets.append(name)
        for name in sockets:
            fd = libc.syscall(SYS_PIDFD_GETFD, process, int(name), 0)
            if fd < 0 and ctypes.get_errno() == errno.EPERM:
                raise Skipped("this machine does not lend a process's descriptors")
            with contextlib.suppress(OSError):  # it is no connection
                one = cls(socket.socket(fileno=fd))
                found += [one] if max(one.moved(), one.moved(RECEIVED_AT)) > 1 << 20 else []
        os.close(process)
        return found

    def moved(self, at=ACKED_AT):
        return struct.unpack_from("Q", self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), at)[0]

    def pace(self, bytes_per_s):
        """0: as fast as it may."""
        self.socket.setsockopt(socket.SOL_SOCKET, MAX_PACING_RATE, struct.pack("Q", bytes_per_s or 2**64 - 1))

    def hear_nothing(self):
        """Every packet that comes to it is lost, until hear()."""
        program = ctypes.create_string_buffer(DROP)
        self.socket.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))

    def hear(self):
        self.socket.setsockopt(socket.SOL_SOCKET, DETACH_FILTER, 0)


@contextlib.contextmanager
def lent(pid):
    """Those of a process for as long as the block runs, by the name of their end there. Behind
    it a close of theirs ends them again."""
    found = Connection.of(pid)
    names = {}
    for one in found:
        with contextlib.suppress(OSError):  # it is cut already
            one.socket.getpeername()
            names[one.socket.getsockname()] = one
    try:
        yield names
    finally:
        for one in found:
            one.socket.close()
