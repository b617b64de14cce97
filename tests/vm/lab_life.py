"""lab_life.py NAME: what becomes of the VM lab that is ended, runs out of time or is given what
it cannot do. Exit codes: 0 passed, 1 failed, 77 skipped with its reason.

Covers: sim/vm/run
"""
import json, os, pathlib, select, shutil, signal, subprocess, sys, tempfile, time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RUN = str(SOURCE / "sim/vm/run")
WAIT_S = 60


# PACKAGE RUN: that package as if it were installed; then the lab as nobody, who has no cache and
# can make none.
INSTALLED = """set -e
mount --bind "$1/boot" /boot
mount -t overlay -o "lowerdir=$1/lib:/usr/lib" overlay /usr/lib
export TB_VM_CACHE=/no/such
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$2" -- \\
    sh -c 'test -d /sys/class/infiniband/rxe0 && echo there'
"""


# A qemu that serves the port of the exit code before the command's own, as one without a processor
# may. The last line of the command begins as the end does, and is not it.
LATE_QEMU = """#!/usr/bin/env python3
import re, sys, time
port = {name: open(path, "wb", buffering=0) for name, path in re.findall(r"file,id=(\\w+),path=(\\S+)", " ".join(sys.argv))}
end = re.search(rb"tb_end='([^']+)'", open(sys.argv[sys.argv.index("-initrd") + 1], "rb").read())[1]
port["control"].write(b"ready\\nrc 3\\n")
time.sleep(0.5)  # for the runner to hear it
for part in (b"said ", end[:1], b"last", end[:9]):
    port["stdout"].write(part)
    time.sleep(0.1)
port["stdout"].write(end[9:])
port["stderr"].write(b"on stderr\\n" + end)
time.sleep(60)
"""


class Failed(Exception):
    pass


def must(truth, text):
    if not truth:
        raise Failed(text)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def until(what, condition):
    end = time.monotonic() + WAIT_S
    while not (got := condition()):
        must(time.monotonic() < end, f"{what}: not within {WAIT_S} s")
        time.sleep(0.02)
    return got


def stat_of(pid):
    """(state, parent), or None when there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    words = text.rsplit(")", 1)[1].split()
    return words[0], int(words[1])


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def machines_of(runner):
    """The pids of the qemus of that runner, once they are qemu."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        stat = stat_of(name)
        if stat and stat[1] == runner and "qemu" in command_of(name):
            pids.append(int(name))
    return pids


def gone(pid):
    stat = stat_of(pid)
    return stat is None or stat[0] in "ZX"


def ended_leaves_nothing(number, up, argv):
    """Runs the lab in a TMPDIR of its own, ends it by a signal once `up` is done; looks for what
    stays."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([RUN, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, "TMPDIR": folder})
        try:
            machines = up(run)
            run.send_signal(number)
            until("the runner ends", lambda: run.poll() is not None)
            for pid in machines:
                until("qemu is gone", lambda pid=pid: gone(pid))
        finally:
            run.kill()
            run.communicate()
        wanted = -number if number == signal.SIGKILL else 128 + number
        must(run.returncode == wanted, f"ended with {run.returncode}, not {wanted}")
        must(os.listdir(folder) == [], f"left in TMPDIR: {os.listdir(folder)}")


def lab(*argv):
    return subprocess.run([RUN, *argv], capture_output=True, text=True, timeout=50 + WAIT_S)


def can_boot():
    """Skips where the lab cannot run; a boot that has no time fails at once where it could."""
    for tool, package in (("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")):
        if not shutil.which(tool):
            skip(f"{tool} is not here (package {package})")
    done = lab("--timeout", "0.1", "--", "true")
    if done.returncode == 77:
        skip(done.stderr.strip().splitlines()[-1])


def a_lab_ended_while_it_boots_leaves_nothing():
    """Two machines, each signal, as early as both are there."""
    can_boot()

    def both(run):
        return until("two machines", lambda: pids if len(pids := machines_of(run.pid)) == 2 else None)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        ended_leaves_nothing(number, both, ["--hosts", "2", "--", "true"])


def in_its_command(run):
    ready, _, _ = select.select([run.stdout], [], [], WAIT_S)
    must(ready and run.stdout.readline() == b"up\n", "the command runs")
    pids = machines_of(run.pid)
    must(pids, "a machine is there")
    return pids


def a_lab_ended_in_its_command_leaves_nothing():
    can_boot()
    for number in (signal.SIGTERM, signal.SIGKILL):
        ended_leaves_nothing(number, in_its_command, ["--", "sh", "-c", "echo up; exec sleep 1000"])


def time_is_bounded():
    """A boot without enough time ends in time, says so and leaves stdout to the command, or to
    --json."""
    can_boot()
    done = lab("--timeout", "1", "--", "true")
    must(done.returncode == 124, f"124, not {done.returncode}")
    must("[vm] out of time after 1 s; the VM had not come up" in done.stderr, f"it says why: {done.stderr}")
    must(done.stdout == "", f"nothing on stdout: {done.stdout}")
    done = lab("--timeout", "1", "--json", "--", "true")
    told = json.loads(done.stdout)
    must(done.returncode == told["code"] == 124 and told["timed_out"], f"JSON says it too: {told}")


def a_command_that_sleeps_is_ended():
    can_boot()
    small = "nproc; awk '/MemTotal/ { print ($2 < 700 * 1024) }' /proc/meminfo; exec sleep 1000"
    done = lab("--timeout", "50", "--json", "--cpus", "1", "--memory", "700", "--", "sh", "-c", small)
    told = json.loads(done.stdout)
    must(done.returncode == 124 and told["timed_out"], f"124: {done.returncode} {done.stderr}")
    must(told["stdout"] == "1\n1\n", f"what the command said until then, of its one CPU and 700 MB: {told}")
    must("out of time after 50 s\n" in done.stderr, f"it says so: {done.stderr}")


def the_last_words_are_not_lost():
    """The code may be here first."""
    can_boot()
    for json_too in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            qemu = pathlib.Path(folder) / "qemu-system-x86_64"
            qemu.write_text(LATE_QEMU, encoding="ascii")
            qemu.chmod(0o755)
            done = subprocess.run([RUN, *(["--json"] if json_too else []), "--", "true"], capture_output=True, text=True, timeout=WAIT_S,
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        must(done.returncode == 3, f"3, not {done.returncode}: {done.stderr}")
        told = json.loads(done.stdout) if json_too else {"stdout": done.stdout, "stderr": done.stderr}
        must(told["stdout"] == "said \x04last", f"all it said: {told}")
        must(told["stderr"].startswith("on stderr\n"), f"on both streams: {told}")
        must(done.stderr.endswith("core-seconds\n"), f"and the lab's own line comes behind: {done.stderr}")
    # It heard of the command's end as soon as of its beginning: all but that moment was the lab's
    # own.
    must(0 < told["before_s"] and 0 < told["after_s"], f"what the lab took before it and after it: {told}")
    must(abs(told["before_s"] + told["after_s"] - told["total_s"]) < 0.1, f"is all it took: {told}")
    must(abs(told["before_s"] + told["after_s"] - told["around_s"]) < 0.02, f"and that is around it: {told}")


def impossible_requests_are_refused():
    for argv in (["--veth", "17", "--", "true"], ["--share", "/no/such", "--", "true"],
                 ["--hosts", "3", "--", "true"], ["--timeout", "0", "--", "true"],
                 ["--fetch", "--", "true"], []):
        done = lab(*argv)
        must(done.returncode == 2 and "usage:" in done.stderr, f"{argv}: {done.returncode} {done.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, RUN, "--json", "--", "true"], capture_output=True, text=True,
                              env={**os.environ, "PATH": folder})
    must(done.returncode == 77, f"77, not {done.returncode}")
    must("qemu" in json.loads(done.stdout)["why_skipped"], f"the reason: {done.stdout}")


def an_ordinary_user_with_an_installed_kernel_needs_no_cache():
    """The cached package stands in for an installed one, in a mount namespace of its own."""
    can_boot()
    if os.geteuid() != 0:
        skip("mount namespaces need root")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = pathlib.Path(os.environ.get("TB_VM_CACHE") or home + "/tombolo-vm")
    kernels = sorted(cache.glob("linux-image-*/boot"))
    if not kernels:
        skip("no kernel in the cache: one is installed here, and every other test uses it")
    with tempfile.TemporaryDirectory() as folder:
        # A user who may not look into root's home still reads the package.
        shutil.copytree(kernels[-1].parent, folder + "/root", symlinks=True)
        os.unlink(next(pathlib.Path(folder).glob("root/vmlinux-*")))  # an installed one is not unpacked yet
        os.chmod(folder, 0o755)
        argv = ["unshare", "-m", "sh", "-c", INSTALLED, "sh", folder + "/root", RUN]
        done = subprocess.run(argv, capture_output=True, text=True, cwd="/")
    must(done.returncode == 0, f"it runs: {done.returncode} {done.stdout} {done.stderr}")
    must(done.stdout == "there\n" and "fetching" not in done.stderr, f"without a download: {done.stderr}")


TESTS = (a_lab_ended_while_it_boots_leaves_nothing, a_lab_ended_in_its_command_leaves_nothing,
         time_is_bounded, a_command_that_sleeps_is_ended, the_last_words_are_not_lost, impossible_requests_are_refused,
         an_ordinary_user_with_an_installed_kernel_needs_no_cache)


def main():
    test = next((test for test in TESTS if test.__name__ == "".join(sys.argv[1:])), None)
    if test is None:
        sys.exit(f"usage: lab_life.py NAME; one of: {' '.join(test.__name__ for test in TESTS)}")
    try:
        test()
    except Failed as why:
        print(f"failed: {why}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
