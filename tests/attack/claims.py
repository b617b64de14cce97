"""A worker with a right certificate that claims what it likes."""

import struct

from certificates import URI
from harness import expect
from hostile import REPLY, SESSION_HELLO, SUBSCRIBE, WELCOME, Connection, frame, session_hello, span, text, tls

EXPORT = 19


class Session:
    """A worker's session that says what it likes."""

    def __init__(self, lab, forger, site, name):
        forger.east.issue(name, (URI, f"tombolo://east/worker/{name}".encode()))
        context = tls(forger.east.folder / "ca.crt", forger.east.folder / f"{name}.crt", forger.east.key)
        self.connection = Connection((lab.address, site.worker_port), context)
        self.requests = 0
        self.asked(SESSION_HELLO, session_hello(name, f"host-{name}"), WELCOME)

    def asked(self, kind, payload, answer=REPLY):
        """The status of the answer."""
        self.requests += 1
        self.connection.send(frame(kind, payload, request=self.requests))
        expect("the kind of the answer", self.connection.answer(passing=set(range(1, 64)) - {answer}), answer)
        return struct.unpack_from("<i", self.connection.answered)[0] if answer == REPLY else 0

    def subscribe(self, model, group, index, count, active=bytes(16), run=0, number=0, said=b""):
        return self.asked(SUBSCRIBE, struct.pack("<I", 1) + text(model) + text(group) + struct.pack("<II", index, count) + active + struct.pack("<QQ", run, number) + span(said))

    def claims_whole(self, uid):
        """A notice; what is asked after it is answered after it was heard."""
        self.connection.send(frame(EXPORT, uid + struct.pack("<QIB", 1, 2**20, 1) + span(b"")))
