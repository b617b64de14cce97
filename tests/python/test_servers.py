"""Servers that are told over HTTP, as stubs that answer as vLLM and SGLang do. Needs neither, nor torch.

Covers: python/tombolo/integrations/servers.py
"""

import http.server
import json
import sys
import threading

import packages  # noqa: F401
from harness import PATIENCE_S, Failed, expect, main, scenario

from tombolo.integrations import servers


class Engine(http.server.BaseHTTPRequestHandler):
    """answers: what comes of a path, one after another; the last one stays. None: the connection ends."""

    told, answers = [], {}

    def do_POST(self):
        path = self.path.partition("?")[0]
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.told.append(path)
        answers = self.answers.get(path, [(200, {})])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            return
        text = json.dumps(answer[1]).encode()
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def told(make, answers, *words):
    """The paths that a server of these answers hears in one update. words: of what is raised."""
    Engine.told, Engine.answers = [], answers
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        make(f"http://127.0.0.1:{server.server_port}")
        if words:
            raise Failed("nothing was raised")
    except servers.Refused as error:
        if not words:
            raise
        for word in words:
            expect(f"{word!r} in {error}", word in str(error), True)
    finally:
        server.shutdown()
        server.server_close()
    return Engine.told


def once(kind):
    return lambda url: kind([url], timeout=PATIENCE_S)(1)


INIT, STAGE, TRUE = "/init_weight_transfer_engine", "/collective_rpc", (200, {"results": ["True", "True"]})
SWITCH = ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"]


@scenario
def the_pause_begins_when_all_ranks_have_staged(lab):
    """P2: vLLM answers with texts, of which "False" is one, and with nothing of a rank that is quiet."""
    answers = [(200, {"results": said}) for said in (["False", "False"], ["True", "False"], ["True", None], [])]
    expect("asked until all say true", told(once(servers.Vllm), {STAGE: [*answers, TRUE]}), [INIT, *[STAGE] * 5, *SWITCH])


@scenario
def a_server_that_was_started_again_is_initialised_again(lab):
    """P10: where it refuses for it, once more; a refusal behind that is raised, and nothing is paused."""
    gone = (500, {"error": "call init_weight_transfer_engine first"})

    def two_updates(url):
        switch = servers.Vllm([url], timeout=PATIENCE_S)
        switch(1)
        switch(2)
    first = [INIT, STAGE, *SWITCH]
    expect("again", told(two_updates, {STAGE: [TRUE, gone, TRUE]}), [*first, STAGE, INIT, STAGE, *SWITCH])
    expect("and no more", told(two_updates, {STAGE: [TRUE, gone]}, "500"), [*first, STAGE, INIT, STAGE])
    make, update = "/init_weights_update_group", "/update_weights_from_distributed"
    switch = ["/pause_generation", update, "/continue_generation"]

    def three_updates(url):
        sglang = servers.Sglang([url], timeout=PATIENCE_S)
        sglang(1)
        try:
            sglang(2)
            raise Failed("nothing was raised")
        except servers.Refused:
            sglang(3)
    unknown, there = (400, {"message": "no such group"}), (400, {"success": False, "message": "there already"})
    expect("a receiver", told(three_updates, {update: [(200, {}), unknown, (200, {})], make: [(200, {}), there, (200, {})]}),
           [make, *switch, *switch, make, "/destroy_weights_update_group", make, *switch])


@scenario
def a_server_is_resumed_whatever_failed(lab):
    """P10: a pause that gives no answer may hold all the same; and where resuming fails too both are said."""
    answers = {STAGE: [TRUE], "/pause": [None]}
    expect("no answer to the pause", told(once(servers.Vllm), answers, "/pause"), [INIT, STAGE, "/pause", "/finish_weight_update", "/resume"])
    answers = {STAGE: [TRUE], "/update_weights": [(500, "no version")], "/resume": [(503, "busy")]}
    expect("both", told(once(servers.Vllm), answers, "/update_weights: 500", "no version", "; ", "/resume: 503", "busy"),
           [INIT, STAGE, *SWITCH])

    class Faulty(servers.Vllm):
        def update(self, step):
            raise KeyError("a fault of its own")
    expect("a fault of its own", told(once(Faulty), {STAGE: [TRUE], "/finish_weight_update": [(500, "no session")]}, "a fault of its own"),
           [INIT, STAGE, "/pause", "/finish_weight_update", "/resume"])


if __name__ == "__main__":
    sys.exit(main())
