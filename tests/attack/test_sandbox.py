"""The acts that a captured tombolod could still do: each thing is tried from inside, with and without the sandbox (P8).

Covers: gateway/daemon/reload.c gateway/sandbox/sandbox.c gateway/sandbox/landlock.c gateway/sandbox/sandbox_paths.c
Covers: gateway/sandbox/system_call_filter.c gateway/sandbox/system_call_filter_absent.c
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from harness import BUILD, PATIENCE_S, TOMBOLOD, Failed, Rollout, Skipped, Trainer, expect, made, main, scenario, wait_for  # noqa: E402
from machine import no_reader  # noqa: E402
from tally import tally  # noqa: E402

TRIES = BUILD / "tests/attack/tombolo-test-sandbox"
SANITIZED = bool(os.environ.get("TB_SANITIZED"))


def tried(on, what, folder, argument=""):
    done = subprocess.run([TRIES, on, what, folder, str(argument)], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{what}: {done.stdout} {done.stderr}")
    return done.stdout.strip()


@contextlib.contextmanager
def other():
    """A process outside of the sandbox, and where one of its bytes stands: PID:ADDRESS."""
    program = "import ctypes, sys; b = ctypes.create_string_buffer(8); print(hex(ctypes.addressof(b)), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.pid, f"{process.pid}:{process.stdout.readline().strip()[2:]}"
        process.stdin.close()


@scenario
def nothing_is_reached_from_inside(lab):
    """P8: each try works without the sandbox. With it the kernel refuses each, and ordinary work goes on."""
    mine, outside = lab.dir / "mine", lab.dir / "outside"
    mine.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("of another")
    (mine / "link").symlink_to(outside / "secret")
    lacks, tries = [], 0
    with other() as (pid, memory):
        rows = [("exec", ""), ("read", outside / "secret"), ("list", outside), ("read_beneath", outside), ("write", outside / "new"), ("link_out", ""),
                ("memory", memory), ("proc_memory", pid), ("kill", pid), ("socket", int(socket.AF_PACKET)), ("socket", 38), ("io_uring", ""),
                ("read", "/etc/group"), ("namespace", "")]
        rows += [] if SANITIZED else [("fork", ""), ("trace", pid)]  # LeakSanitizer needs both
        for what, argument in rows:
            without = tried("off", what, mine, argument)
            if without != "done" and what in ("io_uring", "namespace", "socket", "memory", "trace", "proc_memory"):
                print(f"{what} {argument}: this machine refuses it without the sandbox too: {without}")
            else:
                expect(f"{what} {argument} without the sandbox", without, "done")
            said = tried("on", what, mine, argument)
            tries += 1
            lacks += [f"{what}: {said}"] if said.startswith("lacks:") else []
            if said == "done":
                raise Failed(f"{what} {argument} was done from inside")
    expect("ordinary work", tried("on", "ordinary", mine), "done")
    tally("acts from inside the sandbox", tries, more=f"; not forbidden by this machine: {lacks or 'none'}")
    if len(lacks) == tries:
        raise Skipped("this kernel and this build have no layer of the sandbox")


def kernel_says(pid, field):
    rows = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return rows[field].strip()


@scenario
def a_gateway_lives_inside(lab):
    """P8 P10: the kernel says of each thread that it is inside, and status says the same. `sandbox: false` is told."""
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    east.start()
    pid = east.control("status")["pid"]
    says = east.control("status")["sandbox"]
    print(f"status says {says}")
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            expect(f"NoNewPrivs of thread {task.name}", kernel_says(f"{pid}/task/{task.name}", "NoNewPrivs"), "1")
            if says["seccomp"]:
                expect(f"Seccomp of thread {task.name}", kernel_says(f"{pid}/task/{task.name}", "Seccomp"), "2")
    expect("wanted", says["wanted"], True)
    expect("a reason for what is not on", bool(says["lacks"]), not (says["seccomp"] and says["landlock_abi"] >= 6 and says["no_new_privileges"]))
    paths = made(lab, "4M", 1)
    east.wait_holds(Trainer(lab, east, paths[0]).publish(1))
    east.daemon.signal(signal.SIGTERM)
    expect("it ends well from inside", east.daemon.popen.wait(PATIENCE_S), 0)
    east.root["sandbox"] = "false"
    east.start()
    expect("without", east.control("status")["sandbox"]["wanted"], False)
    expect("NoNewPrivs", kernel_says(east.control("status")["pid"], "NoNewPrivs"), "0")
    if "sandbox.off" not in east.daemon.log_path.read_text():
        raise Failed("no line warns that the sandbox is off")


@scenario
def own_memory_of_ranks_is_landed_from_inside(lab):
    """P1 P8: a gateway in its sandbox reads no other process. Ranks that publish in place put their bytes into memory that it lends. So do
    they for a worker that may not read them. With `sandbox: false` the gateway reads them itself."""
    host = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # a gateway's
    paths = made(lab, "8M", 2)
    for number, (sandbox, way) in enumerate((("true", "same host, by lent memory"), ("false", "same host, by process_vm_readv"))):
        site = lab.site(("east", "west")[number])
        site.models = {"policy": {"home": site.name}}
        site.root["sandbox"] = sandbox
        site.extra["log"] = {"level": "debug"}
        site.start()
        layers = site.control("status")["sandbox"]
        if sandbox == "true" and not (layers["seccomp"] or layers["landlock_abi"]):
            raise Skipped(f"nothing of the sandbox is on here: {layers['lacks']}")
        trainer = Trainer(lab, site, paths[0], names=(f"{site.name}-0", f"{site.name}-1"), host=host)
        uid = trainer.publish(1, in_place=1)
        site.wait_holds(uid)
        for shard, rank in enumerate(trainer.ranks):
            line = f'landing.hop_open rank={rank.name} shard={shard} transport=shm why="{way}"'
            wait_for(f'the log says "{line}"', lambda line=line: site.daemon.logged(line))
        for name, env in (("denied", no_reader()), ("plain", {})):
            reader = Rollout(lab, site, f"{name}-{site.name}", paths[0], host=host, env=env)
            reader.stage(uid)
            reader.activate(uid)
            reader.check(paths[0])
        for rank in trainer.ranks:
            rank.ok("unpublish", uid=uid)


@scenario
def a_new_path_needs_a_restart(lab):
    """P8 P9 P10: a reload names the keys that count from the next start on: the sandbox leads to the paths of the start alone."""
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    east.start()
    config = east.dir / "tombolod.yaml"
    config.write_text(east.config_text().replace(str(east.arena_path), str(lab.dir / "other.arena")))
    east.daemon.signal(signal.SIGHUP)
    wait_for("the log names the key", lambda: east.daemon.logged("warn reload.needs_restart keys=arena.path"))
    far = lab.dir / "far"
    far.mkdir()
    shutil.copy(lab.pki_dir("east") / "ca.crt", far / "ca.crt")
    config.write_text(east.config_text().replace(str(lab.pki_dir("east") / "ca.crt"), str(far / "ca.crt"), 1))
    east.daemon.signal(signal.SIGHUP)
    wait_for("a file that the sandbox hides", lambda: east.daemon.logged("warn reload.needs_restart keys=tls.ca"))
    config.write_text("site: [")
    east.daemon.signal(signal.SIGHUP)
    wait_for("the log says what is wrong", lambda: east.daemon.logged("warn reload.refused"))
    config.write_text(east.config_text())
    east.daemon.signal(signal.SIGHUP)
    wait_for("the certificates are read", lambda: east.daemon.logged("info tls.same"))
    expect("it lives", east.control("status")["ok"], True)


def publishes(lab, site):
    """It does its work."""
    site.wait_holds(Trainer(lab, site, made(lab, "4M", 1)[0]).publish(1))


@scenario
def a_kernel_without_landlock(lab):
    """P8 P10: Landlock's calls are unknown there, as before Linux 5.13. The gateway works with the layers that are left, and says what it lacks."""
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    east.prefix = [TRIES, "old-kernel"]
    east.start()
    says = east.control("status")["sandbox"]
    expect("Landlock", says["landlock_abi"], 0)
    expect("other layers", says["no_new_privileges"], True)
    expect("it says what it lacks", "landlock" in says["lacks"].lower(), True)
    wait_for("a line warns of it", lambda: east.daemon.logged("warn sandbox.entered"))
    publishes(lab, east)


@scenario
def a_build_without_libseccomp(lab):
    """P8 P10: it is built and linked without the filter. Calls that the filter forbids are lacking, by name; Landlock holds all the same."""
    bare = BUILD / "tests/attack/tombolo-test-sandbox-bare"
    (lab.dir / "mine").mkdir()
    (lab.dir / "secret").write_text("of another")
    for what, argument in (("exec", ""), ("socket", int(socket.AF_PACKET))):
        said = subprocess.run([bare, "on", what, lab.dir / "mine", str(argument)], text=True, capture_output=True, check=True).stdout
        expect(f"{what} ({said.strip()})", said.startswith(("lacks:", "done")), True)
    said = subprocess.run([bare, "on", "read", lab.dir / "mine", lab.dir / "secret"], text=True, capture_output=True, check=True).stdout
    expect(f"read ({said.strip()})", said.startswith(("refused:", "lacks:")), True)


@scenario
def a_gateway_of_a_user_that_is_not_root(lab):
    """P8: nobody's gateway works, inside the sandbox. Its files are its own, and for nobody else."""
    if os.getuid() != 0:
        raise Skipped("not root: every gateway here is one of such a user")
    nobody = 65534
    east = lab.site("east")
    for folder in (lab.dir, *lab.dir.parents, *east.arena_path.parents, *TOMBOLOD.parents):
        if folder.stat().st_mode & 0o001:
            continue
        if not folder.name.startswith(("tb-tests-", "tombolo-test-")):  # of this run
            raise Skipped(f"{folder} is closed to other users")
        folder.chmod(0o711)
    east.models = {"policy": {"home": "east", "publish": ["unix:0"], "read": ["unix:0"]}}
    east.extra["audit"] = {"file": str(east.dir / "audit")}
    east.prefix = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups", "--"]
    for folder in (east.dir, east.trust, east.arena_path.parent):
        for path in (folder, *folder.iterdir()):
            os.chown(path, nobody, nobody)
    east.start()
    pid = east.control("status")["pid"]
    expect("its users", set(kernel_says(pid, "Uid").split()), {str(nobody)})
    expect("its rights", int(kernel_says(pid, "CapEff"), 16), 0)
    publishes(lab, east)
    for path in (east.arena_path, east.dir / "store.sqlite", east.dir / "audit", east.dir / "audit.versions"):
        expect(f"{path.name} is its own", (path.stat().st_uid, path.stat().st_mode & 0o777), (nobody, 0o600))


if __name__ == "__main__":
    sys.exit(main())
