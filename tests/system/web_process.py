"""A tombolo-web of its own for a test, and a way to ask it."""

import contextlib
import http.client
import re
import subprocess

from harness import BUILD, PATIENCE_S, expect

WEB = BUILD / "gateway/web/tombolo-web"


@contextlib.contextmanager
def web_of(site):
    """(a function that gets a path, the port)"""
    process = subprocess.Popen([WEB, "--control", site.control_socket, "--listen", "127.0.0.1:0"],
                               stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r"port (\d+),", process.stdout.readline()).group(1))

        def get(path, method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            with contextlib.closing(connection):
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode(), dict(answer.getheaders())
        get.pid = process.pid
        yield get, port
        process.terminate()
        expect("exit code", process.wait(timeout=PATIENCE_S), 0)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
