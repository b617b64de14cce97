"""vm_result.py boot quick|verbs|rails|memory|long RESULTS SOURCE: boots once and runs those vm tests there.
vm_result.py NAME RESULTS: what that test said. Exit codes: 0 passed, 1 failed, 77 skipped with its reason."""
import os, re, subprocess, sys, tempfile

RESULT = re.compile(r"(passed|failed|skipped) ([a-z0-9_]+): ")
CODE = 7  # of guest_tests.sh, so that it is seen to be the command's
SHAPES = {"verbs": ["--hosts", "2", "--veth", "1", "--timeout", "1700"], "memory": ["--memory", "3072", "--timeout", "1700"],
          "rails": ["--veth", "1", "--timeout", "300"],
          "quick": ["--hosts", "2", "--veth", "2", "--timeout", "200"], "long": ["--timeout", "840"]}


def wrong_of_the_lab(ran, share):
    """What the lab promises of any command, and did not keep."""
    if ran.returncode != CODE:
        yield f"the exit code is {ran.returncode}, not the command's {CODE}"
    strange = [line for line in ran.stdout.splitlines() if not RESULT.match(line)]
    if strange:
        yield f"not of the command, on stdout: {strange}"
    errors = ran.stderr.splitlines()
    if "the command's own stderr" not in errors:
        yield "the command's stderr did not come"
    if not any(line.startswith("[vm] exit code") for line in errors):
        yield "the lab said nothing of its own on stderr"
    kept = os.path.join(share, "from_the_guest")
    if not os.path.exists(kept) or open(kept, encoding="ascii").read() != "kept\n":
        yield "what the command wrote into --share did not stay"
    if os.path.exists("/from_the_guest"):
        yield "the guest wrote into this machine's root"


def boot(length, results, source):
    if os.path.exists(results):
        os.remove(results)
    with tempfile.TemporaryDirectory() as share:
        argv = [source + "/sim/vm/run", *SHAPES[length], "--share", share, "--", "env", "OUT=" + share,
                "bash", source + "/tests/vm/guest_tests.sh", length]
        ran = subprocess.run(argv, capture_output=True, text=True)
        wrong = [] if ran.returncode == 77 else [*wrong_of_the_lab(ran, share)]
    text = ran.stdout
    print(text + ran.stderr)
    if ran.returncode == 77:
        text = "skipped all: " + ran.stderr.strip().splitlines()[-1] + "\n"
    with open(results, "w", encoding="utf-8") as file:
        file.write(text)
    print("\n".join(wrong))
    # The tests tell of a skip themselves; for ctest a skipped boot is done, or it would call them failed.
    return 1 if wrong else 0


def result(name, results):
    for line in open(results, encoding="utf-8"):
        head, _, what = line.rstrip("\n").partition(": ")
        kind, _, of = head.partition(" ")
        if kind in ("passed", "failed", "skipped") and of in (name, "all"):
            print(f"{kind}: {what}")
            return {"passed": 0, "failed": 1, "skipped": 77}[kind]
    print(f"the boot said nothing of {name}")
    return 1


if __name__ == "__main__":
    sys.exit(boot(*sys.argv[2:]) if sys.argv[1] == "boot" else result(*sys.argv[1:]))
