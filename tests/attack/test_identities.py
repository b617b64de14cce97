"""Certificates and names that are wrong in one thing, at each listener: none gets in (P8).

Covers: base/net/tls.c base/net/tls_session.c base/ident.c gateway/daemon/links/peer_rights.c
Covers: gateway/daemon/sessions/sessions.c intra/fabric/exports.c
"""

import os
import pathlib
import socket
import ssl
import struct
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from certificates import URI  # noqa: E402
from forger import denials, east_of, honest_link  # noqa: E402
from harness import Failed, Trainer, expect, main, scenario, wait_for  # noqa: E402
from hostile import (BIND, BOUND, HELLO, PATIENCE_S, PEER_DENIED, REPLY, SESSION_HELLO, SUBSCRIBE, WELCOME, Connection, Ended,  # noqa: E402
                     bind, frame, link_hello, session_hello, text, tls)
from tally import Identities  # noqa: E402

END = 5  # a door's last word


class Table(Identities):
    def show(self):
        if wrong := super().show():
            raise Failed("accepted: " + "; ".join(wrong))


def first_answer(to, context, kind, payload, **header):
    """The type that answers a first frame; None: it closed, or refused the certificate."""
    try:
        with Connection(to, context) as connection:
            connection.send(frame(kind, payload, **header))
            return connection.answer()
    except Ended:
        return None


OTHERS = ["tombolo://west/publisher/gw", "tombolo://west/other", "tombolo://west/gw2", "tombolo://north/gw", "tombolo://south/gw", "tombolo://east/gw", "tombolo://west/worker/gw",
          "tombolo://west/worker", "tombolo://west/worker/"]


@scenario
def no_wrong_identity_opens_a_link(lab):
    """P8: control and data connections. A right certificate that says another name in HELLO is as wrong as a wrong certificate."""
    forger, east = east_of(lab)
    east.start()
    to, table = (lab.address, east.port), Table()
    wrong = forger.certificates(forger.west, "west", "gw", OTHERS)
    connection, session = honest_link(forger, to)
    with connection:
        for what, (certificate, key) in wrong.items():
            context = tls(forger.west.folder / "ca.crt", certificate, key)
            table.add("link, control", what, first_answer(to, context, HELLO, link_hello()) == HELLO)
            table.add("link, data", what, first_answer(to, context, BIND, bind(session)) == BOUND)
    right = tls(forger.west.folder / "ca.crt", forger.west.folder / "gw.crt", forger.west.key)
    for what, hello in {
            "another site": link_hello(site="north"), "the site of the gateway": link_hello(site="east"), "no site": link_hello(site=""),
            "an unknown site": link_hello(site="south"), "a site in capitals": link_hello(site="WEST"), "a site with a NUL": link_hello(site=b"west\0"),
            "a site that is too long": link_hello(site="w" * 65), "another gateway": link_hello(gateway="gw2"), "no gateway": link_hello(gateway=""),
            "a worker's name": link_hello(gateway="worker"), "a gateway with a NUL": link_hello(gateway=b"gw\0"), "lane 1 of 1": link_hello(lane=1),
            "lane 1 of 2": link_hello(lane=1, lanes=2), "lane 0 of none": link_hello(lanes=0), "a lane near 2^32": link_hello(lane=2**32 - 1, lanes=2**32 - 1),
            "an old protocol": link_hello(protocol=0, protocol_min=0), "a later protocol alone": link_hello(protocol=9, protocol_min=9),
            "protocols turned around": link_hello(protocol=2, protocol_min=3), "bytes behind": link_hello() + b"\0", "a cut": link_hello()[:-1]}.items():
        table.add("link, HELLO", what, first_answer(to, right, HELLO, hello) == HELLO)
    table.add("link, HELLO", "a request", first_answer(to, right, HELLO, link_hello(), request=1) == HELLO)
    table.add("link, HELLO", "a field that is zero", first_answer(to, right, HELLO, link_hello(), zero=1) == HELLO)
    table.add("link, data", "a session that nobody has", first_answer(to, right, BIND, bind(bytes(range(16)))) == BOUND)
    table.add("link, data", "the session of none", first_answer(to, right, BIND, bind(bytes(16))) == BOUND)
    north = tls(forger.west.folder / "ca.crt", forger.north.folder / "gw.crt", forger.north.key)
    connection, session = honest_link(forger, to)
    with connection:
        table.add("link, data", "the session of another peer", first_answer(to, north, BIND, bind(session)) == BOUND)
    table.show()
    honest_link(forger, to)[0].__exit__()


class Impostor(threading.Thread):
    """Listens where east dials west, and shows a certificate; hears whether east says anything to it."""

    def __init__(self, lab, port):
        super().__init__(daemon=True)
        self.listener = socket.create_server((lab.address, port))
        self.context = None
        self.heard = []  # of each connection: what came
        self.ended = False
        self.start()

    def run(self):
        while not self.ended:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            try:
                plain.settimeout(PATIENCE_S)
                with self.context.wrap_socket(plain, server_side=True) as connection:
                    self.heard.append(connection.recv(1))
            except (OSError, ssl.SSLError):
                self.heard.append(b"")

    def show(self, context):
        """The answer of east to a client that shows this."""
        self.context = context
        before = len(self.heard)
        wait_for("east dials twice", lambda: len(self.heard) >= before + 2)  # the first may have begun before
        return self.heard[before + 1]

    def close(self):
        self.ended = True
        self.listener.close()


@scenario
def nothing_is_said_to_a_wrong_gateway(lab):
    """P8: east dials west, and finds somebody else: no byte of it reaches that one."""
    forger, east = east_of(lab)
    port = lab.free_port()
    east.peers["west"] = f"{lab.address}:{port}"
    east.extra["link"] = {"retry_max_ms": 100}
    impostor, table = Impostor(lab, port), Table()
    wrong = forger.certificates(forger.west, "west", "gw", OTHERS)
    wrong.pop("none")  # a server shows one
    wrong.pop("no use as a client")
    wrong["no use as a server"] = forger.west.issue("west-gw-client", (URI, b"tombolo://west/gw"), usage="clientAuth"), forger.west.key
    contexts = {what: tls(forger.east.folder / "ca.crt", *pair, server=True) for what, pair in wrong.items()}
    impostor.context = next(iter(contexts.values()))
    east.start()
    try:
        for what, context in contexts.items():
            table.add("dialled gateway", what, impostor.show(context) != b"")
        table.show()
        right = tls(forger.east.folder / "ca.crt", forger.west.folder / "gw.crt", forger.west.key, server=True)
        if impostor.show(right) == b"":
            raise Failed("east says nothing to west itself either")
    finally:
        impostor.close()


def subscribed(to, context, name):
    """The status that answers SUBSCRIBE to policy; None: there is no session."""
    with Connection(to, context) as connection:
        connection.send(frame(SESSION_HELLO, session_hello(name=name), request=1))
        if connection.answer() != WELCOME:
            return None
        connection.send(frame(SUBSCRIBE, struct.pack("<I", 1) + text("policy") + text("group") + struct.pack("<II", 0, 1) + bytes(36), request=2))
        expect("SUBSCRIBE is answered", connection.answer(), REPLY)
        return struct.unpack_from("<i", connection.answered)[0]


@scenario
def no_wrong_identity_opens_a_session(lab):
    """P8: a worker from another host is who its certificate says. The name that it says itself gives it no right."""
    forger, east = east_of(lab)
    east.start()
    to, table = (lab.address, east.worker_port), Table()
    others = ["tombolo://west/worker/w0", "tombolo://east/publisher/w0", "tombolo://north/worker/w0", "tombolo://east/gw", "tombolo://west/gw", "tombolo://east/worker",
              "tombolo://east/worker/", "tombolo://east/worker/a/b"]
    for what, (certificate, key) in forger.certificates(forger.east, "east", "worker/w0", others).items():
        context = tls(forger.east.folder / "ca.crt", certificate, key)
        table.add("session", what, first_answer(to, context, SESSION_HELLO, session_hello(), request=1) == WELCOME)
    contexts = {}
    for name in ("w0", "w1"):
        forger.east.issue(name, (URI, f"tombolo://east/worker/{name}".encode()))
        contexts[name] = tls(forger.east.folder / "ca.crt", forger.east.folder / f"{name}.crt", forger.east.key)
    for what, hello in {
            "no name": session_hello(name=""), "a name with a NUL": session_hello(name=b"w0\0"), "a name that is a path": session_hello(name="../w0"),
            "a name that is too long": session_hello(name="w" * 65), "no host": session_hello(host=""), "a host with a NUL": session_hello(host=b"h\0"),
            "an older protocol": session_hello(protocol=2), "a later protocol": session_hello(protocol=9), "a truth that is neither": session_hello(spot=2),
            "bytes behind": session_hello() + b"\0", "a cut": session_hello()[:-1]}.items():
        table.add("session, HELLO", what, first_answer(to, contexts["w0"], SESSION_HELLO, hello, request=1) == WELCOME)
    with Connection(to, contexts["w0"]) as connection:
        connection.send(frame(SESSION_HELLO, session_hello(), request=1))
        expect("a right worker is welcome", connection.answer(), WELCOME)
        session = connection.answered[4:20]
        with Connection(to, contexts["w1"]) as other:
            other.send(frame(SESSION_HELLO, session_hello(session=session), request=1))
            table.add("session, HELLO", "the session of another worker", other.answer() == WELCOME and other.answered[4:20] == session)
    for name in ("w0", "W0", "w1", "gw", "rank0"):
        table.add("session, rights", f"the name {name}, said by w1", subscribed(to, contexts["w1"], name) != PEER_DENIED)
    table.show()
    expect("w0 itself, by any name", subscribed(to, contexts["w0"], "other"), 0)


def door_hello(token, export=1, version=1, magic=0x3170006f6c6f626d, kind=1, zero=0):
    return struct.pack("<HHIQQII", kind, 0, version, magic, export, 0, zero) + token


@scenario
def no_stranger_reads_at_a_door(lab):
    """P8: the door of a site's fabric opens by a token that the catalog gave: a certificate of any CA opens nothing, nor does its lack."""
    forger, east = east_of(lab)
    port = lab.free_port()
    east.extra["fabric"] = {"listen": f"{lab.address}:{port}"}
    east.start()
    Trainer(lab, east, lab.weights(1)[0]).publish(1)
    table, to, opened_with = Table(), (lab.address, port), os.urandom(16)
    shown = {"no certificate": (None, None), "a right gateway's certificate": (forger.west.folder / "gw.crt", forger.west.key),
             "its own certificate": (forger.east.folder / "gw.crt", forger.east.key), "its own key": (forger.west.sign_itself("mine", "tombolo://west/gw"), forger.west.key)}
    said = {"a token of its own": door_hello(opened_with), "no token": door_hello(bytes(16)), "no export": door_hello(opened_with, export=0),
            "the last export": door_hello(opened_with, export=2**64 - 1), "another version": door_hello(opened_with, version=9),
            "another magic": door_hello(opened_with, magic=1), "READ before HELLO": door_hello(opened_with, kind=2),
            "VERBS before HELLO": door_hello(opened_with, kind=5), "a field that is zero": door_hello(opened_with, zero=1)}
    for whose, pair in shown.items():
        context = tls(forger.east.folder / "ca.crt", *pair)
        for what, data in said.items():
            table.add("door", f"{whose}, {what}", door_says(to, context, data) not in (END, None))
    table.show()
    wait_for("tokens that open nothing are in the record", lambda: sum(r["count"] for r in denials(east, "read")) >= 4)


def door_says(to, context, data):
    """The type that answers; None: it closed, or refused the certificate."""
    try:
        with Connection(to, context) as connection:
            connection.send(data)
            return struct.unpack_from("<H", connection.read(48))[0]
    except Ended:
        return None


if __name__ == "__main__":
    sys.exit(main())
