"""Calls of the library with what a test does beside them, and a site for them."""

import contextlib
import os
import threading

import packages
from harness import PATIENCE_S, expect

from tombolo.library import lib

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(packages.SOURCE / "python")}


def site_of(lab, *models):
    site = lab.site("east")
    for model in models or ("policy",):
        site.models[model] = dict(home="east", keep=4)
    site.start()
    os.environ["TOMBOLO_GATEWAY"] = ENVIRONMENT["TOMBOLO_GATEWAY"] = f"unix:{site.session_socket}"
    return site


@contextlib.contextmanager
def seen(name, before=lambda: None, after=lambda status: None):
    """Calls of one function of the library, with what the test does beside them."""
    real = getattr(lib, name)

    def call(*arguments):
        before()
        status = real(*arguments)
        after(status)
        return status
    setattr(lib, name, call)
    try:
        yield
    finally:
        setattr(lib, name, real)


class Beside(threading.Thread):
    """A call in a thread, and what came of it."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.result, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.result = self.call()
        except Exception as error:  # into the test's own thread
            self.error = error

    def ended(self):
        self.join(PATIENCE_S)
        expect("the call ended", self.is_alive(), False)
        return self


class Memory(bytearray):
    """Of which one can know whether it is still there."""
