"""one_boot.py begin FOLDER: boots the VM in which the tests labelled vm run, whichever of them
ctest was asked for; it stays. one_boot.py NAME FOLDER: has guest_tests.sh run that test there,
and says what came of it. one_boot.py end FOLDER: ends it, and looks whether the lab kept its
promises.

Exit codes: 0 passed, 1 failed, 77 skipped with its reason. The VM ends with ctest, however that
ends.

Covers: sim/vm/run base/net/tls_session.c intra/verbs/verbs_door.c intra/verbs/upstream.c
Covers: intra/verbs/upstream_path.c intra/verbs/nic.c intra/verbs/nic_facts.c
Covers: intra/verbs/rails.c
"""
import ctypes, os, pathlib, select, shutil, signal, subprocess, sys, time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CODE = 7  # of guest_tests.sh, so that it is seen to be the command's
# Two hosts, as some tests need both; the first with as many processors as if it were alone, since
# most need only that; two pairs of veth: a second NIC, and one for netem; memory for the arenas of
# several gateways.
SHAPE = ("--hosts", "2", "--cpus", "2", "--veth", "2", "--memory", "3072", "--timeout", "10800")
UP_S = 400   # the lab takes 7 s; beside a load of 20 on two cores 50 to 200
END_S = 60
SKIP = 77


class Boot:
    """The knowledge of the VM, in files. A keeper, which is no child of a test, starts the lab
    and waits for it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.share = self.folder / "share"
        self.keeper, self.code = self.folder / "keeper", self.folder / "code"
        self.stdout, self.stderr = self.folder / "stdout", self.folder / "stderr"

    def ended(self):
        """The lab's exit code, or None while it runs."""
        return int(self.code.read_text(encoding="ascii")) if self.code.exists() else None

    def wait(self, file, seconds):
        """Whether the guest has made it, before the lab ended or the time was over."""
        until = time.monotonic() + seconds
        while not file.exists() and self.ended() is None and time.monotonic() < until:
            time.sleep(0.05)
        return file.exists()

    def ask(self, name):
        asked = self.share / "ask.new"
        asked.write_text(name + "\n", encoding="ascii")
        asked.rename(self.share / "ask")

    def said(self):
        return self.stdout.read_text(encoding="utf-8") + self.stderr.read_text(encoding="utf-8")

    def why_skipped(self):
        """The lab's reason, where it cannot run here."""
        return self.stderr.read_text(encoding="utf-8").strip().splitlines()[-1] if self.ended() == SKIP else None


def begin(boot):
    shutil.rmtree(boot.folder, ignore_errors=True)
    boot.share.mkdir(parents=True)
    with boot.stdout.open("w") as out, boot.stderr.open("w") as err:
        keeper = subprocess.Popen([sys.executable, __file__, "keep", str(boot.folder), str(os.getppid())], stdin=subprocess.DEVNULL,
                                  stdout=out, stderr=err, start_new_session=True)
    boot.keeper.write_text(str(keeper.pid), encoding="ascii")
    # The tests tell of a skip themselves; for ctest a skipped boot is done, or it would call them
    # failed.
    if boot.wait(boot.share / "up", UP_S) or boot.why_skipped():
        return 0
    print(f"the VM did not come up within {UP_S} s:\n{boot.said()}")
    stop(boot)
    return 1


def keep(boot, ctest):
    """Starts the lab, and ends it when ctest is gone."""
    keeper = os.getpid()

    def die_with_keeper():
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != keeper:
            os._exit(1)

    try:
        ctest_gone = os.pidfd_open(int(ctest))
    except ProcessLookupError:
        return 1
    lab = subprocess.Popen([SOURCE / "sim/vm/run", *SHAPE, "--share", boot.share, "--", "env", f"OUT={boot.share}", "bash",
                            SOURCE / "tests/vm/guest_tests.sh"], preexec_fn=die_with_keeper)
    ready, _, _ = select.select([ctest_gone, os.pidfd_open(lab.pid)], [], [])
    if ctest_gone in ready:
        lab.terminate()
    new = boot.folder / "code.new"
    new.write_text(str(lab.wait()), encoding="ascii")
    new.rename(boot.code)
    return 0


def keeper_of(boot):
    try:
        return os.pidfd_open(int(boot.keeper.read_text(encoding="ascii")))
    except (FileNotFoundError, ProcessLookupError):
        return None


def stop(boot):
    keeper = keeper_of(boot)
    if keeper is not None:
        signal.pidfd_send_signal(keeper, signal.SIGTERM)  # and the lab with it
        select.select([keeper], [], [], END_S)


def result(boot, name):
    if boot.why_skipped():
        print(boot.why_skipped())
        return SKIP
    answer = boot.share / name
    answer.unlink(missing_ok=True)
    boot.ask(name)
    if not boot.wait(answer, float("inf")):  # ctest bounds it
        print(f"the VM has ended:\n{boot.said()}")
        return 1
    said = answer.read_text(encoding="utf-8")
    print(said)
    if said.startswith("failed"):
        print((boot.share / (name + ".err")).read_text(encoding="utf-8", errors="replace"))
    return {"passed": 0, "skipped": SKIP}.get(said.partition(":")[0], 1)


def wrong_of_the_lab(boot):
    """The promises of the lab for any command that it did not keep."""
    if boot.ended() != CODE:
        yield f"the exit code is {boot.ended()}, not the command's {CODE}"
    strange = [line for line in boot.stdout.read_text(encoding="utf-8").splitlines()
               if line.split(" ")[0] not in ("passed", "failed", "skipped")]
    if strange:
        yield f"not of the command, on stdout: {strange}"
    errors = boot.stderr.read_text(encoding="utf-8").splitlines()
    if "the command's own stderr" not in errors:
        yield "the command's stderr did not come"
    if not any(line.startswith("[vm] exit code") for line in errors):
        yield "the lab said nothing of its own on stderr"
    kept = boot.share / "from_the_guest"
    if not kept.exists() or kept.read_text(encoding="ascii") != "kept\n":
        yield "what the command wrote into --share did not stay"
    if os.path.exists("/from_the_guest"):
        yield "the guest wrote into this machine's root"


def end(boot):
    if boot.why_skipped():
        print(boot.why_skipped())
        return SKIP
    keeper = keeper_of(boot)
    if keeper is not None:
        boot.ask("end")
        if not select.select([keeper], [], [], END_S)[0]:
            print(f"the VM did not end within {END_S} s")
            stop(boot)
    wrong = [*wrong_of_the_lab(boot)]
    print(boot.said(), *wrong, sep="\n")
    return 1 if wrong else 0


def main():
    what, boot, *more = sys.argv[1], Boot(sys.argv[2]), *sys.argv[3:]
    steps = {"begin": begin, "keep": keep, "end": end}
    return steps[what](boot, *more) if what in steps else result(boot, what)


if __name__ == "__main__":
    sys.exit(main())
