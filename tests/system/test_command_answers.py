"""Answers of `tombolo`: exit codes, progress, help, and a reason for each refusal (P10).

Covers: gateway/cli/tombolo.c gateway/cli/commands.c gateway/cli/options.c gateway/cli/manual.c
Covers: gateway/cli/man_pages.c
Covers: gateway/cli/output.c
"""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

from bundles import expect_same, hugging_face, not_in_time, refused
from harness import (BUILD, PATIENCE, PATIENCE_S, SOURCE, TOMBOLO, TOMBOLOD, Failed, Skipped,
                     expect, made, main, safetensors, scenario, version_folder, wait_for)


def on_a_terminal(site, *args):
    """The output of a command on standard error when that is a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{site.session_socket}", TOMBOLO_CONTROL=str(site.control_socket))
    command = subprocess.Popen([str(TOMBOLO), *map(str, args)], env=env, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
        while data := os.read(ours, 4096):
            text += data
    os.close(ours)
    return text.decode(), command.wait(PATIENCE_S)


@scenario
def progress_is_for_terminals(lab):
    """P10: on a terminal publish and subscribe show how much, how fast and how long still, on
    one line that is gone at the end; elsewhere they say nothing before they are done."""
    east = lab.site("east", arena_mib=96)
    east.models["policy"] = dict(home="east")
    east.extra["fabric"] = {"host": "another", "pace_bytes_per_s": "4MiB"}  # by tcp, so that there is something to see for 3 s
    east.start()
    source, little = lab.dir / "m.safetensors", lab.dir / "little.safetensors"
    safetensors(source, {"w": ("U8", [12 << 20], bytes(12 << 20))})
    safetensors(little, {"w": ("U8", [1 << 16], bytes(1 << 16))})
    for args in (("publish", "policy", source, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "seen", "--version", 1)):
        text, code = on_a_terminal(east, *args)
        expect(f"exit code of {args[0]} ({text[-500:]!r})", code, 0)
        if not re.search(r"\r[^\r]* [1-9][0-9]? %  [0-9.]+ MB of 12\.6 MB  [0-9.]+ [kM]B/s  [0-9.:]+( s)? left\x1b\[K", text):
            raise Failed(f"{args[0]} on a terminal showed {text!r}")
        expect(f"the line of {args[0]} is gone", text.endswith("\r\x1b[K"), True)
    for args in (("publish", "policy", little, "--version", 2, "--quiet"), ("subscribe", "policy", "--into", lab.dir / "unseen", "--quiet"),
                 ("subscribe", "policy", "--into", lab.dir / "unseen", "--json")):
        done = east.cli(*args)
        results = [line for line in done.stdout.splitlines() if '"progress"' not in line]  # none, where it took less than a second
        expect(f"{args[0]} elsewhere", (done.stderr, len(results)), ("", 0 if "--quiet" in args else 1))


@scenario
def a_gateway_that_is_not_there_is_told_of_at_once(lab):
    """P10: on a terminal publish and subscribe say that nobody answers, and what to do, while
    they go on trying; Ctrl-C ends that (130)."""
    little = lab.dir / "little.safetensors"
    safetensors(little, {"w": ("U8", [64], bytes(64))})
    for args in (("publish", "policy", little, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "into"),
                 ("publish", "policy", little, "--version", 1, "--json")):
        ours, theirs = pty.openpty()
        env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{lab.dir}/nobody.sock")
        command = subprocess.Popen([str(TOMBOLO), *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        text = b""
        if "--json" not in args:
            while b"Trying on for" not in text:
                text += os.read(ours, 4096)  # EIO if it ended without
            expect("what it says", b"nobody.sock" in text and b"No such file" in text and b"--gateway" in text, True)
        else:  # silent until the end: signals are its own once it looks for the gateway
            wait_for("it waits for the gateway", lambda: len(list(pathlib.Path(f"/proc/{command.pid}/task").iterdir())) > 1)
        command.send_signal(signal.SIGINT)
        expect(f"exit code of {args[0]} ({text!r})", command.wait(PATIENCE_S), 130)
        said = command.stdout.read()
        if "--json" in args:
            expect("json of an interrupt", (json.loads(said)["ok"], json.loads(said)["status"]), (False, "cancelled"))
        os.close(ours)


def unread_output_is_no_success(site):
    """A table or an answer that could not be written was not shown."""
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(TOMBOLO), "versions", *more], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                  check=False, env=dict(os.environ, TOMBOLO_CONTROL=str(site.control_socket)))
        expect(f"versions {more} into a full disk", (done.returncode != 0, "written" in done.stderr), (True, True))


@scenario
def refusals_have_their_exit_codes(lab):
    """P10: 1 refused, 2 usage, 3 away, 4 timeout, 5 denied; each with a sentence."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.models["secret"] = dict(home="east", publish=["unix:12345"], read=["unix:12345"])
    east.models["elsewhere"] = dict(home="west")
    east.peers["west"] = None
    east.start()
    good = hugging_face(lab.dir / "good", 1)
    bad = lab.dir / "bad.safetensors"
    bad.write_bytes(b"\x02\0\0\0\0\0\0\0{}x")
    into = lab.dir / "into"
    refused(east, 1, "bad.safetensors: 1 bytes behind the last tensor", "publish", "policy", bad, "--version", "1")
    refused(east, 1, "nothing.safetensors: No such file", "publish", "policy", lab.dir / "nothing.safetensors", "--version", "1")
    refused(east, 2, "--version", "publish", "policy", good)
    refused(east, 2, "--version takes a whole number", "publish", "policy", good, "--version", 1 << 63)
    refused(east, 2, "--run", "publish", "policy", good, "--version", "1", "--shard", "0/2")
    refused(east, 2, "I/N", "publish", "policy", good, "--version", "1", "--shard", "2/2", "--run", "k")
    refused(east, 2, "--into", "subscribe", "policy")
    refused(east, 2, "exclude each other", "subscribe", "policy", "--into", into, "--latest", "--follow")
    refused(east, 2, "need --follow", "subscribe", "policy", "--into", into, "--keep", "2")
    refused(east, 2, "need --follow", "subscribe", "policy", "--into", into, "--on-version", "true")
    refused(east, 2, "1 or more", "subscribe", "policy", "--into", into, "--follow", "--keep", "0")
    refused(east, 5, "peer_denied", "publish", "polcy", good, "--version", "1")  # an identity without a right is not told what there is
    refused(east, 1, "not_home", "publish", "elsewhere", good, "--version", "1")
    refused(east, 1, "the home of elsewhere is west, and this gateway is of east", "publish", "elsewhere", good, "--version", "1")
    for right, command in (("publish", ("publish", "secret", good, "--version", "1")), ("read", ("subscribe", "secret", "--into", into))):
        for words in ("peer_denied", f"models.secret.{right} of the gateway does not list unix:{os.getuid()}"):
            refused(east, 5, words, *command)
    refused(east, 1, 'there is no peer "north"; this gateway\'s are west', "limit", "north")
    east.cli("limit", "west")
    expect("a limit that is only read has not changed", east.daemon.logged("limit.changed"), [])
    for words, version in (("timeout", ()), ("waiting for version 7: not within --timeout; `tombolo versions policy` lists", ("--version", "7"))):
        not_in_time(east, words, "subscribe", "policy", "--into", into, *version)
    (lab.dir / "circle").symlink_to("circle")
    for words in (("publish", "policy", lab.dir / "circle", "--version", "1"), ("subscribe", "policy", "--into", lab.dir / "circle")):
        refused(east, 1, "Too many levels of symbolic links (bad_argument)", *words)
    refused(east, 1, f"{into}/a/b: No such file", "subscribe", "policy", "--into", into / "a" / "b")
    refused(east, 1, f"{bad}/.tombolo-lock: Not a directory", "subscribe", "policy", "--into", bad)
    refused(east, 1, "not_found", "withdraw", "policy", "99")
    nowhere, made = lab.dir / "no-pki", lab.dir / "new-pki"
    refused(east, 1, "there is no CA here; `tombolo pki init` makes one", "pki", "issue", "tombolo://east/gw2", "--dir", nowhere)
    for code, words in ((0, "ca.crt goes to"), (1, "say another --dir")):
        refused(east, code, words, "pki", "init", "--dir", made, "--site", "east")
    for code, words in ((0, "gw2.crt"), (1, "say --out NAME")):
        refused(east, code, words, "pki", "issue", "tombolo://east/gw2", "--dir", made)
    refused(east, 1, "is not the CA of site west", "pki", "issue", "tombolo://west/gw", "--dir", made)
    failure = json.loads(refused(east, 1, "status", "withdraw", "policy", "99", "--json").stdout)
    expect("json of a failure", (failure["ok"], failure["status"]), (False, "not_found"))
    unread_output_is_no_success(east)
    expect("exit code of tombolod", east.daemon.terminate(), 0)
    refused(east, 3, "no gateway answers at", "status")
    started = time.monotonic()
    done = refused(east, 3, "gateway_away", "publish", "policy", good, "--version", "1", "--timeout", "1s")
    if "No such file" not in done.stderr or "does tombolod run there?" not in done.stderr:
        raise Failed(f"a gateway that is away: {done.stderr}")
    expect("the gateway is not waited for long", time.monotonic() - started < 30, True)


@scenario
def a_container_with_a_network_of_its_own_is_told(lab):
    """P10: A command that shares the unix socket alone, from a network namespace of its own,
    ends at once and says why; it hung without a word."""
    if os.getuid() != 0:
        raise Skipped("a network namespace takes root")
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    good = lab.dir / "good.safetensors"
    safetensors(good, {"w": ("U8", [1 << 16], bytes(1 << 16))})
    for args in (("publish", "policy", good, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "into")):
        done = subprocess.run(["unshare", "-n", str(TOMBOLO), *map(str, args), "--gateway", f"unix:{east.session_socket}"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        expect(f"exit code of {args[0]} ({done.stderr})", done.returncode, 1)
        if "network namespace of its own" not in done.stderr or "--fabric-address" not in done.stderr:
            raise Failed(f"{args[0]} said {done.stderr!r}")
    east.cli("publish", "policy", good, "--version", 1)  # beside the gateway all is as ever


@scenario
def a_container_with_an_address_is_read_by_it(lab):
    """P6: From a network namespace of its own, over the shared unix socket, --fabric-address is
    where a command is read; it reads from fabric.listen."""
    if os.getuid() != 0:
        raise Skipped("a network namespace takes root")
    name = f"tombolo-c{os.getpid()}"
    outside, inside = f"tc{os.getpid()}o", f"tc{os.getpid()}i"
    steps = (["ip", "netns", "add", name], ["ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name],
             ["ip", "addr", "add", "10.213.7.1/30", "dev", outside], ["ip", "link", "set", outside, "up"],
             ["ip", "-n", name, "addr", "add", "10.213.7.2/30", "dev", inside], ["ip", "-n", name, "link", "set", inside, "up"])
    try:
        for step in steps:
            subprocess.run(step, check=True, capture_output=True)
        east = lab.site("east")
        east.models["policy"] = dict(home="east")
        east.extra["fabric"] = {"listen": "10.213.7.1:0"}
        east.start()
        source = hugging_face(lab.dir / "source", 1)
        for args in (("publish", "policy", source, "--version", 1), ("subscribe", "policy", "--into", lab.dir / "into", "--version", 1)):
            subprocess.run(["ip", "netns", "exec", name, str(TOMBOLO), *map(str, args), "--timeout", PATIENCE, "--fabric-address", "10.213.7.2:0",
                            "--gateway", f"unix:{east.session_socket}"], check=True, timeout=2 * PATIENCE_S)
        expect_same(source, version_folder(lab.dir / "into", 1))
        # P10: where the gateway listens for readers on loopback alone, it says so at once; it hung
        # without a word.
        east.extra["fabric"] = {}
        east.restart()
        done = subprocess.run(["ip", "netns", "exec", name, str(TOMBOLO), "subscribe", "policy", "--into", lab.dir / "none", "--fabric-address",
                               "10.213.7.2:0", "--gateway", f"unix:{east.session_socket}"], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        expect(f"exit code ({done.stderr})", done.returncode, 1)
        if "set fabric.listen" not in done.stderr:
            raise Failed(f"subscribe said {done.stderr!r}")
        expect("the log says it, too", len(east.daemon.logged("session.refused", "reason=fabric_listen_is_loopback")), 1)
    finally:
        subprocess.run(["ip", "link", "del", outside], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@scenario
def a_site_alone_says_so(lab):
    """P6 P10: a request that needs another site is refused where there can be none; it does not wait for one."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.start()
    refused(east, 1, "has no `peers`", "adopt", "policy", lab.dir)
    refused(east, 1, 'there is no peer "west"; this gateway has none', "limit", "west")


@scenario
def help_is_the_table(lab):
    """P10: Each command's help has an example; the manual page and the completion are well-formed."""
    overview = lab.tombolo("help").stdout
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", overview, re.MULTILINE)
    for command in ("publish", "subscribe", "withdraw", "versions", "status", "streams", "limit", "pki issue", "config check"):
        expect(f"help lists {command}", command in commands, True)
    for command in commands:
        text = lab.tombolo(*command.split(), "--help").stdout
        expect(f"help of {command}", "usage: tombolo " + command in text and "Example:" in text, True)
    page = lab.tombolo("help", "--man").stdout
    expect("manual page", page.startswith(".TH TOMBOLO 1") and ".SH EXIT STATUS" in page, True)
    pages = lab.dir / "man1"
    pages.mkdir()
    lab.tombolo("help", "--man-pages", pages)
    expect("a page for each command", sorted(p.name for p in pages.iterdir()), sorted(f"tombolo-{c.replace(' ', '-')}.1" for c in commands))
    (pages / "tombolo.1").write_text(page)
    if shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-T", "lint", *sorted(pages.iterdir())], capture_output=True, text=True, check=False)
        expect("what mandoc has to say", done.stdout, "")
    expect("pages into no folder", subprocess.run([str(TOMBOLO), "help", "--man-pages", lab.dir / "no"], capture_output=True).returncode, 2)
    takes = {}  # what stands before a command is understood before it (options.h)
    for command in commands:
        for option, value in re.findall(r"^  (--[a-z-]+)( \S+)?", lab.tombolo(*command.split(), "--help").stdout, re.MULTILINE):
            expect(f"{option} of {command} takes a value", bool(value), takes.setdefault(option, bool(value)))
    expect("no command", subprocess.run([str(TOMBOLO), "publsh"], capture_output=True).returncode, 2)
    for argv in (["publsh"], ["publish", "policy", "x"], ["status", "--nope"], ["pki", "init"], ["subscribe", "policy"]):
        done = subprocess.run([str(TOMBOLO), *argv, "--json"], capture_output=True, text=True)
        said = json.loads(done.stdout)
        expect(f"{argv} as JSON", (done.returncode, said["ok"], said["status"]), (2, False, "bad_argument"))
    for argv, words in ((["publsh"], 'did you mean "publish"?'), (["pki", "foo"], 'no command "pki foo"; see `tombolo pki --help`'),
                        (["help", "publish", "x"], 'no command "publish x"')):
        done = subprocess.run([str(TOMBOLO), *argv], capture_output=True, text=True)
        expect(f"{argv} ({done.stderr.strip()})", (done.returncode, words in done.stderr), (2, True))
    for argv in (["--versions", "0"], ["--bytes", "lots"], ["--versions"], ["--build", lab.dir / "nowhere"], ["--nope"]):
        done = subprocess.run([SOURCE / "deploy/quickstart", "--build", BUILD, *argv], capture_output=True, text=True)
        expect(f"quickstart {argv} ({done.stderr.strip()})", (done.returncode, done.stderr.count("\n")), (2, 1))
    for argv in (["--nope"], [lab.dir / "no-such/out.svg"], [lab.dir / "out.svg", lab.dir / "no-such.yaml"]):
        done = subprocess.run([SOURCE / "sim/fleet/plot", *argv], cwd=lab.dir, capture_output=True, text=True)
        expect(f"plot {argv} ({done.stderr.strip()})", (done.returncode, done.stderr.count("\n"), (lab.dir / "--nope").exists()), (2, 1, False))
    for group, names in (("pki", ("pki init", "pki issue")), ("config", ("config check", "config explain"))):
        text = lab.tombolo(group, "--help").stdout
        expect(f"help {group}", lab.tombolo("help", group).stdout, text)
        expect(f"help of {group}", all("usage: tombolo " + name in text for name in names), True)
    explained = subprocess.run([str(TOMBOLOD), "--explain"], capture_output=True, text=True)
    expect("tombolod --explain", (explained.returncode, explained.stdout), (0, lab.tombolo("config", "explain").stdout))
    expect("version", lab.tombolo("--version").stdout.startswith("tombolo "), True)


if __name__ == "__main__":
    sys.exit(main())
