"""Messages between trainer and engine: lines of JSON over TCP, which a thread reads into a queue."""

import json
import queue
import socket
import threading
from typing import Any


class Messages:
    """inbox gets (name, message) for each line, and (name, None) when the other end is gone."""

    def __init__(
        self,
        connection: socket.socket,
        inbox: "queue.Queue[tuple[Any, dict[str, Any] | None]]",
        name: Any = None,
    ) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._inbox, self.name = connection, inbox, name
        self._lines = connection.makefile("r", encoding="utf-8")

    def first(self) -> dict[str, Any]:
        """One message, before read_on()."""
        message: dict[str, Any] = json.loads(self._lines.readline())
        return message

    def read_on(self) -> None:
        threading.Thread(target=self._read, name="messages", daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._lines:
                self._inbox.put((self.name, json.loads(line)))
        except (OSError, ValueError):  # ValueError: half a line
            pass
        self._inbox.put((self.name, None))

    def send(self, **message: Any) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")
