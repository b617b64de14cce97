#!/usr/bin/env python3
"""tombolo-web: what a gateway says, as a page and as metrics, and nothing else (P7, P10).

Covers: gateway/web/main.c gateway/web/web_server.c gateway/web/page.c gateway/web/metrics.c
Covers: gateway/web/metrics_links.c gateway/web/metrics_readers.c gateway/web/web_answers.c
"""

import contextlib
import html.parser
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

from harness import PATIENCE_S, SOURCE, Failed, Rollout, Skipped, Trainer, expect, main, scenario, up, wait_for
from web_process import web_of

SERIES = re.compile(r'^([a-z_]+)(\{([a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? -?[0-9.e+-]+$')


def families(text):
    """{name: [line]} of a text in Prometheus' format, each family in one block behind its head."""
    found, name = {}, None
    for line in text.splitlines():
        head = re.match(r"^# (HELP|TYPE) ([a-z0-9_]+) ", line)
        if head and head.group(1) == "HELP":
            name = head.group(2)
            if name in found:
                raise Failed(f"two blocks of {name}")
            found[name] = []
        elif head:
            expect("the head's name", head.group(2), name)
        elif not SERIES.match(line) or not re.match(rf"{name}(_bucket|_sum|_count)?[ {{]", line):
            raise Failed(f"behind the head of {name}: {line}")
        else:
            found[name].append(line)
    return found


class Page(html.parser.HTMLParser):
    """Its text, and whether each tag ends."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words = [], []
        self.feed(text)
        expect("tags that are open at the end", self.open, [])

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        expect("the tag that ends", self.open.pop(), tag)

    def handle_data(self, data):
        self.words.append(data)

    def text(self):
        return " ".join(" ".join(self.words).split())


CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tombolo-prometheus"
PROMTOOL = shutil.which("promtool", path=f"{os.environ['PATH']}:{CACHE}")  # deploy/setup --tests fetches it


def promtool(*words, text=None):
    """Prometheus' own check, where it is here."""
    if PROMTOOL:
        done = subprocess.run([PROMTOOL, *map(str, words)], input=text, capture_output=True, text=True, timeout=60)
        expect(" ".join(["promtool", *map(str, words)]), (done.returncode, done.stdout + done.stderr if done.returncode else ""), (0, ""))


@scenario
def the_page_and_the_metrics_say_what_the_gateway_says(lab):
    east, west, link = lab.east_west()
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid = trainer.publish(1)
    west.wait_holds(uid)
    with web_of(east) as (get, port):
        def metrics():
            return families(get("/metrics")[1])
        wait_for("west has it", lambda: 'tombolo_lag_versions{model="policy",site="west"} 0' in metrics()["tombolo_lag_versions"])
        status, text, headers = get("/metrics")
        found = families(text)
        promtool("check", "metrics", text=text)
        expect("code and type", (status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        expect("is up", found["tombolo_up"], ["tombolo_up 1"])
        expect("link", found["tombolo_link_up"], ['tombolo_link_up{peer="west"} 1'])
        counters = east.control("status")["counters"]
        expect("each counter", {f"tombolo_{name}_total" for name in counters} - set(found), set())
        status, text, headers = get("/")
        expect("page", (status, "default-src 'none'" in headers["Content-Security-Policy"]), (200, True))
        if "All sites have what they should have." not in Page(text).text():
            raise Failed(f"no verdict: {Page(text).text()}")
        expect("rights that it gave up", _status_of(get.pid, "NoNewPrivs"), "1")
        expect("probes", [get(path)[:2] for path in ("/livez", "/readyz")], [(200, "ok\n")] * 2)
        expect("script, style and icon", [get(path)[0] for path in ("/style.css", "/page.js", "/icon.svg")], [200] * 3)
        for view in ("/sites", "/versions", "/links", "/readers", "/health"):
            Page(get(view)[1])
        expect("no such path", get("/etc/passwd")[0], 404)
        expect("no other method", [get("/", method)[0] for method in ("POST", "PUT", "DELETE")], [405] * 3)

        link.refusing = True
        link.cut()
        wait_for("the page knows nothing of west", lambda: "Nothing is known now of policy at west" in Page(get("/")[1]).text())
        expect("nor is there a number", [line for line in metrics()["tombolo_lag_seconds"] if "west" in line], [])

        # P7: those who connect and say nothing keep out nobody who comes from elsewhere, and end.
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        wait_for("they are ended", lambda: all(_ended(s) for s in silent))

        def answers():  # the place of a connection is free a moment after its end is seen
            with contextlib.suppress(ConnectionError):
                return get("/livez")[0] == 200
            return False
        wait_for("it answers again", answers)

        east.kill()
        wait_for("it says that the gateway is away", lambda: get("/livez")[0] == 503)
        expect("not ready", get("/readyz")[0], 503)
        expect("only that", list(metrics()), ["tombolo_up"])
        if "does not answer" not in Page(get("/")[1]).text():
            raise Failed("the page does not say that the gateway is away")


@scenario
def alerts_mean_what_they_say(_):
    """The rules of deploy/prometheus: each fires when it should, and not before; and each series
    that they name is one of ours."""
    rules = SOURCE / "deploy/prometheus/alerts.yml"
    ours = {name for source in (SOURCE / "gateway/web").glob("metrics*.c") for name in re.findall(r'"(tombolo_[a-z_]+)"', source.read_text())}
    expect("series of nobody", set(re.findall(r"\btombolo_[a-z_]+", rules.read_text())) - ours, set())
    if not PROMTOOL:
        raise Skipped("promtool is not here (deploy/setup --tests fetches it)")
    promtool("check", "rules", rules)
    promtool("test", "rules", rules.with_name("alerts_test.yml"))


def _status_of(pid, key):
    """A line of /proc/PID/status."""
    return re.search(rf"(?m)^{key}:\s*(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)


PROMETHEUS = shutil.which("prometheus", path=f"{CACHE}:{os.environ['PATH']}")


class Prometheus:
    """Debian's, for one test: it scrapes these ports each second."""

    def __init__(self, lab, ports):
        self.port = lab.free_port()
        targets = json.dumps([f"127.0.0.1:{port}" for port in ports])
        config = lab.dir / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: tombolo, static_configs: [{{targets: {targets}}}]}}]\n")
        self.process = lab.process("prometheus", [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={lab.dir / 'tsdb'}",
                                                  f"--web.listen-address={lab.address}:{self.port}"])
        self.address = f"http://{lab.address}:{self.port}"

    def series(self, expression):
        """[] while it does not answer, too."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{self.address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}", timeout=PATIENCE_S) as answer:
                return json.load(answer)["data"]["result"]
        return []


@scenario
def each_question_of_the_dashboard_is_answered(lab):
    """Over two gateways, a trainer and readers that prove what they compute from."""
    if not PROMETHEUS:
        raise Skipped("prometheus is not here (deploy/setup --tests fetches it)")
    dashboard = json.loads((SOURCE / "deploy/prometheus/dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expect("it asks something", len(expressions) > 40, True)
    east, west, _ = lab.east_west()
    up(east, west)
    paths = lab.weights(2)
    with web_of(east) as (_, east_port), web_of(west) as (_, west_port):
        prometheus = Prometheus(lab, (east_port, west_port))
        wait_for("both are scraped", lambda: len(prometheus.series("tombolo_up == 1")) == 2)
        trainer = Trainer(lab, east, paths[0])
        reader = Rollout(lab, west, "w0", paths[0], prove=1)
        for number, path in enumerate(paths, 1):
            uid = trainer.publish(number, path)
            west.wait_holds(uid)
            reader.stage(uid)
            reader.activate(uid)
        wait_for("a stage was counted", lambda: prometheus.series('tombolo_stage_seconds_count{stage="landing"} > 0'))
        for expression in expressions:
            wait_for(f"a series of {expression}", lambda expression=expression: prometheus.series(expression))
        one = prometheus.series("count by (model, site, instance) (tombolo_lag_reason)")
        expect("one reason for each site and model", {row["value"][1] for row in one}, {"1"})


def _ended(connection):
    connection.settimeout(0.01)
    with contextlib.suppress(TimeoutError, OSError):
        return connection.recv(1) == b""
    return False


if __name__ == "__main__":
    sys.exit(main())
