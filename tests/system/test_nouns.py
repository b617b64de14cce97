"""`tombolo sites`, `peers`, `models`, `versions`, `workers`, `groups`, `streams`, `chains`, and
`describe`: lists that say what the gateway says, in every form (P10).

Covers: gateway/cli/operator/noun_commands.c gateway/cli/operator/show_table.c gateway/cli/tombolo.c
Covers: gateway/daemon/control/group_status.c gateway/daemon/control/event_commands.c
Covers: gateway/cli/operator/events_command.c
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

from bundles import refused
from harness import PATIENCE_S, TOMBOLO, Failed, Process, Rollout, Trainer, expect, main, scenario, up, wait_for

NOUNS = ("sites", "peers", "models", "versions", "workers", "groups", "streams", "chains")
OWN_ANSWER = {"versions": "versions", "streams": "links", "chains": "chains"}  # under --json, docs/control.md has them


def tsv(site, *words):
    keys, *lines = (line.split("\t") for line in site.cli(*words, "-o", "tsv").stdout.splitlines())
    for line in lines:
        expect(f"fields of a line of {words}", len(line), len(keys))
    return [dict(zip(keys, line)) for line in lines]


def names_of(site, noun):
    """The argument of `describe`, as the list has it."""
    rows = tsv(site, noun)
    if noun in ("versions", "chains"):
        return sorted({f"{r['model']}/{r['version']}" for r in rows})
    if noun == "groups":
        return [f"{r['model']}/{r['group']}" for r in rows]
    if noun == "streams":
        return [f"{r['peer']}/{r['stream']}" for r in rows]
    return [r[noun[:-1]] for r in rows]


def forms_of(site, noun):
    """Each form has the same rows."""
    plain = site.cli(noun).stdout.splitlines()
    expect(f"{noun} with a line less", len(site.cli(noun, "--no-headers").stdout.splitlines()), len(plain) - 1)
    wide = site.cli(noun, "-o", "wide").stdout.splitlines()
    expect(f"rows of {noun}", (len(wide), len(tsv(site, noun))), (len(plain), len(plain) - 1))
    if len(plain) < 2:
        raise Failed(f"{noun} lists nothing at {site.name}")
    said = json.loads(site.cli(noun, "--json").stdout)
    expect(f"json of {noun}", (said["schema"], said["ok"], OWN_ANSWER.get(noun, noun) in said), (1, True, True))
    expect(f"-o json of {noun}", set(json.loads(site.cli("-o", "json", noun).stdout)), set(said))
    if noun not in OWN_ANSWER:
        expect(f"json rows of {noun}", [set(r) >= {"name"} for r in said[noun]], [True] * (len(plain) - 1))


def descriptions_of(site, noun):
    for name in names_of(site, noun):
        text = site.cli("describe", noun, name).stdout
        expect(f"the first line of {noun} {name}", text.splitlines()[0], f"{noun[:-1]} {name}")
        one = json.loads(site.cli("describe", noun[:-1], name, "--json").stdout)
        expect(f"its json", (one["ok"], one["noun"], one[noun[:-1]]["name"]), (True, noun[:-1], name))


@scenario
def each_noun_lists_and_describes(lab):
    """P10: Each list in each form, and each thing of it described; what is not known is "?"."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["fabric"] = west.extra["fabric"] = {"host": "reef"}
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    rollout = Rollout(lab, west, "w0", path)
    rollout.stage(uid)
    rollout.activate(uid)
    wait_for("east hears of it", lambda: any(s["activated"] for s in east.version(uid)["sites"]))
    for site in (east, west):
        for noun in NOUNS:
            if site is east and noun in ("groups", "chains"):
                continue  # nobody reads there
            forms_of(site, noun)
            descriptions_of(site, noun)
    sites_say_what_lag_says(east, west)
    groups_say_who_switched(west)
    for site in (east, west):
        (held,) = json.loads(site.cli("describe", "site", site.name, "--json").stdout)["versions"]
        expect(f"what {site.name} says that it holds", (held["version"], held["whole"], held["held_percent"]), ("1:1", True, 100))
    expect("hosts of a chain", {r["host"] for r in tsv(west, "chains")}, {"reef", "host-w0"})
    expect("a version by its number", site_of_version(west, "policy/1"), site_of_version(west, "policy/1:1"))
    expect("east's list of groups", east.cli("groups", "--json").stdout, '{"schema":1,"ok":true,"groups":[]}\n')
    names_that_are_not_there(east, west)


def sites_say_what_lag_says(east, west):
    wait_for("nobody is behind", lambda: {r["reason"] for r in tsv(east, "sites")} == {"up-to-date"})
    rows = {r["site"]: r for r in tsv(east, "sites")}
    expect("sites at home", {n: (r["link"], r["models"], r["behind"]) for n, r in rows.items()},
           {"east": ("here", "1", "0"), "west": ("up", "1", "0")})
    rows = {r["site"]: r for r in tsv(west, "sites")}
    expect("what west knows of east", (rows["east"]["link"], rows["east"]["models"], rows["east"]["behind"]), ("up", "-", "?"))
    (model,) = tsv(east, "models")
    expect("followers of the model", (model["sites"], model["sites_behind"]), ("1", "0"))


def groups_say_who_switched(west):
    (group,) = tsv(west, "groups")
    expect("the group", {k: group[k] for k in ("members", "present", "active", "activated", "staging")},
           {"members": "1", "present": "1", "active": "1:1", "activated": "1", "staging": "-"})
    (served,) = json.loads(west.cli("describe", "group", f"policy/{group['group']}", "--json").stdout)["members"]
    expect("its member", (served["worker"], served["version"]), ("w0", "1:1"))


def site_of_version(site, name):
    return json.loads(site.cli("describe", "version", name, "--json").stdout)["version"]["name"]


def names_that_are_not_there(east, west):
    refused(east, 1, 'there is no site "mars" here; there is east, west (not_found)', "describe", "site", "mars")
    refused(east, 1, 'there is no group "policy/g" here: there is none', "describe", "group", "policy/g")
    refused(east, 2, '"plant" is not one of site, peer', "describe", "plant", "fern")
    refused(east, 2, 'there is no column "colour": --sort takes one of site, link', "sites", "--sort", "colour")
    refused(east, 2, "--output takes wide|json|tsv", "sites", "-o", "yaml")
    refused(east, 2, "--sort is of tables", "versions", "--json", "--sort", "bytes")
    refused(west, 1, 'no model "polcy" is configured here', "chains", "polcy")
    expect("the order", [r["site"] for r in tsv(east, "sites", "--sort", "-site")], ["west", "east"])
    expect("json of a failure", json.loads(refused(east, 1, "", "-o", "json", "describe", "site", "mars").stdout)["status"], "not_found")


@scenario
def options_stand_before_and_after_a_command(lab):
    """P10: The same words in both orders have the same answer; a leading option of no command is
    named."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    control = ("--control", east.control_socket)
    for command in (("models",), ("config", "show"), ("lag", "policy")):
        after = lab.tombolo(*command, *control, "--json").stdout
        expect(f"{command}", sorted(json.loads(lab.tombolo("--json", *control, *command).stdout)), sorted(json.loads(after)))
    expect("one before, one behind", lab.tombolo("--no-headers", "models", *control).stdout.split()[:2], ["policy", "east"])
    for words, says in ((("--colour", "models"), "unknown option --colour"), (("--json",), "a command is missing"),
                        (("--sort", "x", "status"), "unknown option --sort"), (("--json", "modles"), 'did you mean "models"')):
        done = subprocess.run([str(TOMBOLO), *words], capture_output=True, text=True, check=False)
        expect(f"{words} ({done.stderr}{done.stdout})", (done.returncode, says.replace('"', '\\"') in done.stdout or says in done.stderr), (2, True))
    expect("help", lab.tombolo("--json", "--help").stdout, lab.tombolo("help").stdout)
    done = subprocess.run([str(TOMBOLO), "--colour", "lag", "--check"], capture_output=True, text=True, check=False)
    expect("a monitoring plug-in's code of that", done.returncode, 3)


class Terminal:
    """A command whose standard output is a terminal of so many columns."""

    def __init__(self, columns, site, *words):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen([str(TOMBOLO), *words, "--control", str(site.control_socket)], stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        self.text = ""

    def read_until(self, words):
        until = time.monotonic() + PATIENCE_S
        while words not in self.text:
            if not select.select([self.ours], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Failed(f"the terminal shows no {words!r}: {self.text[-2000:]!r}")
            self.text += os.read(self.ours, 65536).decode()  # EIO if it ended without

    def end(self):
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while data := os.read(self.ours, 65536):
                self.text += data.decode()
        os.close(self.ours)
        self.process.stderr.close()
        return self.process.wait(PATIENCE_S)


@scenario
def a_table_fits_its_terminal_and_is_watched(lab):
    """P10: No line is longer than the terminal is wide. --watch shows the newest answer, goes on
    while the gateway restarts, and ends well by a signal."""
    east = lab.site("east")
    long = "a-name-that-no-terminal-of-forty-columns-has-any-room-for"
    for model in ("policy", long):
        east.models[model] = dict(home="east")
    east.start()
    for columns in (50, 80, 200):
        shown = Terminal(columns, east, "models")
        expect("exit code", shown.end(), 0)
        lines = shown.text.replace("\r", "").splitlines()
        expect(f"lines within {columns} columns ({lines})", (len(lines), max(map(len, lines)) <= columns), (3, True))
    watched = Terminal(120, east, "models", "--watch")
    watched.read_until("policy")
    east.restart()
    Trainer(lab, east, lab.weights(1)[0]).publish(7)  # the gateway before had no version
    watched.read_until("1:7")
    watched.process.send_signal(signal.SIGINT)
    expect("exit code of a watch", watched.end(), 0)
    lines = Process("watch", [TOMBOLO, "lag", "--watch", "--json", "--control", east.control_socket], lab.dir / "watch.log", stdout=subprocess.PIPE)
    lab.processes.append(lines)
    for _ in range(2):
        expect("a line of a watch", json.loads(lines.popen.stdout.readline())["ok"], True)
    lines.signal(signal.SIGTERM)
    expect("exit code", lines.ended(), 0)


@scenario
def rows_that_an_answer_leaves_out_are_said(lab):
    """P10: of three thousand workers an answer has some. A worker that is not among them may be there all the same."""
    control = ("--control", lab.dir / "large.sock")
    large = {"status": {"session_count": 3000, "group_count": 2100, "sessions": [{"name": "w0"}], "groups": [{"model": "m", "group": f"g{i}"} for i in range(1024)]},
             "chains": {"chains": []}}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(control[1]))
        listener.listen()

        def answer():
            with contextlib.suppress(OSError):  # the listener is shut
                while True:
                    taken, _ = listener.accept()
                    with taken:
                        command = json.loads(taken.makefile().readline())["cmd"]
                        taken.sendall(json.dumps({"schema": 1, "ok": True, **large[command]}).encode() + b"\n")
        answering = threading.Thread(target=answer)
        answering.start()
        for words, code, says in ((("describe", "worker", "w9"), 1, 'there is no worker "w9" among the 1 of 3000 workers in the gateway\'s answer'),
                                  (("describe", "worker", "w0"), 0, "the gateway's answer has the 1 of 3000 workers"),
                                  (("describe", "group", "m/x"), 1, 'there is no group "m/x" among the 1024 of 2100 groups'),
                                  (("groups",), 0, "the gateway's answer has the 1024 of 2100 groups")):
            done = subprocess.run([TOMBOLO, *words, *control], capture_output=True, text=True, check=False)
            expect(f"{words}: {done.stderr}", (done.returncode, says in done.stderr), (code, True))
        listener.shutdown(socket.SHUT_RDWR)
        answering.join(PATIENCE_S)
    control[1].unlink()


def events(site, *words):
    return [json.loads(line) for line in site.cli("events", "--json", *words).stdout.splitlines()]


@scenario
def events_are_read_by_id_and_followed(lab):
    """P10: The gateway's events are there by id, from any id on, and a follower goes on over a
    restart."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.peers["west"] = None
    east.start()
    east.cli("limit", "west", "--rate", "6Mbit")
    rows = events(east)
    ids = [r["id"] for r in rows]
    expect("ids", ids, list(range(ids[0], ids[0] + len(ids))))
    changed = next(r for r in rows if r["event"] == "limit.changed")
    (line,) = east.daemon.logged("limit.changed")
    expect("it is the line of the log", line.endswith(changed["text"]), True)
    expect("from there on", [r["id"] for r in events(east, "--from", changed["id"])], [i for i in ids if i >= changed["id"]])
    expect("the newest two", [r["id"] for r in events(east, "--limit", 2)], ids[-2:])
    expect("by name", [r["id"] for r in events(east, "--event", "limit.ch")], [changed["id"]])
    starts = [r["id"] for r in rows if "start" in r["event"]]
    expect("the newest of that name", [r["id"] for r in events(east, "--event", "start", "--limit", 1)], starts[-1:])
    expect("it is not the newest of all", starts[-1] < ids[-1], True)
    expect("none is so bad", events(east, "--level", "error"), [])
    text = east.cli("events", "--from", changed["id"]).stdout.splitlines()[0].split()
    expect("as text", (text[0], text[2:4]), (str(changed["id"]), [changed["level"], "limit.changed"]))
    refused(east, 1, "--limit is between 1 and 4096", "events", "--limit", 0)
    follower = Process("events", [TOMBOLO, "events", "--follow", "--json", "--from", ids[-1] + 1, "--control", east.control_socket],
                       lab.dir / "events.log", stdout=subprocess.PIPE)
    lab.processes.append(follower)
    east.cli("limit", "west", "--rate", "7Mbit")
    seen = json.loads(follower.popen.stdout.readline())
    expect("what came", (seen["event"], seen["id"]), ("limit.changed", ids[-1] + 1))
    east.restart()
    while seen["event"] != "start":
        later = json.loads(follower.popen.stdout.readline())
        if "id" in later:  # a gateway that is away is an object, too
            expect("ids grow", later["id"] > seen["id"], True)
            seen = later
    follower.signal(signal.SIGTERM)
    expect("exit code", follower.ended(), 0)
    expect("a restart is said", "the gateway started again" in (lab.dir / "events.log").read_text(), True)


if __name__ == "__main__":
    sys.exit(main())
