#!/usr/bin/env python3
"""When tombolo-web asks its gateway, and what it says meanwhile: a probe answers of now, a question
that hangs holds up nobody for long, and an update goes out also where another reader asked (P7,
P10).

A stand-in answers, because no real gateway hangs or takes a set time.

Covers: gateway/web/web_answers.c gateway/web/page_updates.c gateway/web/web_server.c
"""

import contextlib
import http.client
import sys
import threading
import time
import types

from harness import PATIENCE_S, SOURCE, expect, main, scenario, wait_for
from web_process import web_of

sys.path.append(str(SOURCE / "tests/frameworks"))
from stand_in_gateway import Fleet, StandIn  # noqa: E402


@contextlib.contextmanager
def stand_in(lab, **others):
    """A gateway of a small fleet, with other answers to some commands; and a tombolo-web of it."""
    gateway = StandIn(lab.dir / "gateway.sock", {**Fleet(3, 2).answers(), **others})
    with contextlib.closing(gateway), web_of(types.SimpleNamespace(control_socket=gateway.path)) as (get, port):
        yield gateway, get, port


def slowly(command, seconds):
    """Its answer takes that long, and so counts as costly."""
    line = Fleet(3, 2).answers()[command]

    def answer():
        time.sleep(seconds)
        return line()
    return answer


@scenario
def a_probe_answers_of_now(lab):
    with stand_in(lab, status=slowly("status", 0.3)) as (gateway, get, _):  # by its cost it would be kept for 30 s
        for path in ("/livez", "/readyz"):
            expect(path, get(path)[0], 200)
        expect("the page has it, too", get("/health")[0], 200)
        gateway.close()
        for path in ("/livez", "/readyz"):
            expect(f"{path} without a gateway", get(path)[0], 503)
        expect("and so has /metrics", "\ntombolo_up 0\n" in get("/metrics")[1], True)


@scenario
def a_question_that_hangs_is_asked_seldom(lab):
    end = threading.Event()

    def never():
        end.wait()
        return b""
    with stand_in(lab, lag=never) as (gateway, get, _):
        wait_for("a scrape asks it, and goes on", lambda: get("/metrics")[0] == 200 and "lag" in gateway.asked)
        expect("it hung", gateway.asked["lag"], 1)
        expect("what it left no time for has its turn later", gateway.asked.get("versions", 0), 0)
        asked = gateway.asked["status"]

        def scrapes():
            get("/metrics")
            return gateway.asked["status"] >= asked + 3  # each a second after the one before
        wait_for("status is asked again", scrapes)
        expect("so is versions", gateway.asked["versions"] > 0, True)
        expect("what hung is not", gateway.asked["lag"], 1)
        end.set()


@scenario
def an_update_goes_out_after_another_reader_asked(lab):
    """All that the page needs is fresh by the probes of others, but for lag, which is asked once."""
    with stand_in(lab, lag=slowly("lag", 0.3)) as (gateway, get, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        ended = threading.Event()

        def probe():
            while not ended.wait(0.1):
                get("/livez")
        prober = threading.Thread(target=probe)
        prober.start()
        try:
            with contextlib.closing(connection):
                connection.request("GET", "/updates/sites")
                answer = connection.getresponse()
                ids = []
                while len(ids) < 4:
                    line = answer.readline()
                    if line.startswith(b"id: "):
                        ids.append(int(line.split(b"-")[1]))
        finally:
            ended.set()
            prober.join()
        expect("each is one more", ids, list(range(ids[0], ids[0] + 4)))
        expect("lag was not asked for them", gateway.asked["lag"], 1)


if __name__ == "__main__":
    sys.exit(main())
