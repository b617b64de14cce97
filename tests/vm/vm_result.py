"""vm_result.py boot RESULTS SOURCE: boots once and runs all vm tests there. vm_result.py NAME RESULTS: what that test said.
Exit codes: 0 passed, 1 failed, 77 skipped with its reason."""
import os, subprocess, sys


def boot(results, source):
    if os.path.exists(results):
        os.remove(results)
    ran = subprocess.run([source + "/sim/vm/run", "--hosts", "2", "--veth", "1", "--timeout", "150", "--", "bash", source + "/tests/vm/guest_tests.sh"],
                         capture_output=True, text=True)
    text = ran.stdout
    print(text + ran.stderr)
    if ran.returncode == 77:
        text = "skipped all: " + ran.stderr.strip().splitlines()[-1] + "\n"
    with open(results, "w", encoding="utf-8") as file:
        file.write(text)
    # The tests tell of a skip themselves; for ctest a boot that was skipped is done, or it would call them failed.
    return 0 if ran.returncode in (0, 77) else 1


def result(name, results):
    for line in open(results, encoding="utf-8"):
        head, _, what = line.rstrip("\n").partition(": ")
        kind, _, of = head.partition(" ")
        if kind in ("passed", "failed", "skipped") and of in (name, "all"):
            print(f"{kind}: {what}")
            return {"passed": 0, "failed": 1, "skipped": 77}[kind]
    print(f"the boot said nothing of {name}")
    return 1


sys.exit(boot(*sys.argv[2:]) if sys.argv[1] == "boot" else result(*sys.argv[1:]))
