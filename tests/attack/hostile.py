"""A peer and a worker that keep to no rule, written from docs/protocol.md: what it does not say they do not know.

A Link speaks as a gateway of another site, a Session as a worker. Both send what they are told to, and say what came back."""

import contextlib
import os
import select
import socket
import ssl
import struct

HELLO, BYE, PING, PONG, BIND, BOUND = 1, 2, 3, 4, 20, 21
SESSION_HELLO, WELCOME, REPLY, SUBSCRIBE = 1, 2, 3, 11
PEER_DENIED = -304  # of include/tombolo/status.h
PATIENCE_S = float(os.environ.get("TB_PATIENCE_S", "60"))


def text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<H", len(data)) + data


def span(data):
    return struct.pack("<I", len(data)) + data


def frame(kind, payload, request=0, zero=0):
    return struct.pack("<IHHQ", len(payload), kind, zero, request) + payload


def tls(ca, certificate=None, key=None, server=False):
    """A context that takes any peer, and shows this certificate, or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not server:
        context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if server else ssl.CERT_NONE
    context.load_verify_locations(ca)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


class Ended(Exception):
    """The other end closed, or refused the certificate."""


class Connection:
    """Frames over TLS; None for what did not come."""

    def __init__(self, to, context, server_name=None):
        self.opened = contextlib.ExitStack()
        try:
            plain = self.opened.enter_context(socket.create_connection(to, timeout=PATIENCE_S))
            self.socket = self.opened.enter_context(context.wrap_socket(plain, server_hostname=server_name))
        except OSError as error:  # ssl.SSLError is one
            self.opened.close()
            raise Ended(str(error)) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.opened.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Ended(str(error)) from None

    def read(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except OSError as error:
                raise Ended(str(error)) from None
            if not more:
                raise Ended("closed")
            data += more
        return data

    def receive(self):
        """(type, payload)"""
        count, kind, _, _ = struct.unpack("<IHHQ", self.read(16))
        return kind, self.read(count)

    def answer(self, passing=()):
        """The type of the next frame that is none of those, or None where the other end closes."""
        try:
            while True:
                kind, payload = self.receive()
                if kind not in passing:
                    self.answered = payload
                    return kind
        except Ended:
            return None

    def wait_closed(self):
        """Whether the other end closes in time, whatever else comes."""
        try:
            while select.select([self.socket], [], [], PATIENCE_S)[0]:
                self.read(1)
        except Ended:
            return True
        return False


def link_hello(site="west", gateway="gw", protocol=3, protocol_min=2, lane=0, lanes=1, life=None, incarnation=1, session=bytes(16), more=b""):
    return (struct.pack("<II", protocol, protocol_min) + text(site) + text(gateway) + struct.pack("<II", lane, lanes) + (life or os.urandom(16)) +
            struct.pack("<Q", incarnation) + session + span(more))


def bind(session, stream=1):
    return session + struct.pack("<I", stream)


def session_hello(name="w0", host="host-w0", rack="", protocol=3, session=bytes(16), spot=0, pid=7):
    return (struct.pack("<I", protocol) + session + text(name) + text(host) + text(rack) + struct.pack("<BI", spot, pid) + text("") + text("") +
            b"\0" + bytes(32))
