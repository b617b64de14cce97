"""results_told.py: what tests/results.py says last of a run's results.

Covers: tests/results.py
"""
import contextlib
import io
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import results  # noqa: E402

SKIPPED = '<testcase name="{}" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>{}</system-out></testcase>'
PASSED = '<testcase name="{}" status="run"/>'
FAILED = '<testcase name="{}" status="fail"><failure message=""/></testcase>'
NO_DEVICE = SKIPPED.format("intra.verbs", "skipped: no device")
IN_THE_LAB = "vm.faults_that_rdma_alone_can_have"


def said(*words, **stages):
    """The last lines for these results."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        for stage, cases in stages.items():
            pathlib.Path(folder, stage + ".xml").write_text(f"<testsuite>{cases}</testsuite>", encoding="ascii")
        sys.argv = ["results.py", folder, *words]
        results.main()
    return out.getvalue().splitlines()


def rdma(lines):
    return [line for line in lines if line.startswith("RDMA")]


def main():
    quick = said(dev=PASSED.format("a") + NO_DEVICE)
    assert quick[-1] == "1 passed, 0 failed, 1 skipped", quick
    assert quick[-2] == "RDMA was not tested: skipped: no device", quick
    no_lab = said(dev=PASSED.format("a") + NO_DEVICE, vm=SKIPPED.format(IN_THE_LAB, "no qemu here"))
    assert no_lab[-2:] == ["RDMA was not tested: no qemu here", "1 passed, 0 failed, 2 skipped"], no_lab
    assert rdma(said(asan=PASSED.format("a"))) == ["RDMA was not tested: no test over verbs ran; tests/run --stage vm"]
    assert rdma(said(dev=NO_DEVICE, vm=PASSED.format(IN_THE_LAB))) == []
    assert rdma(said(dev=PASSED.format("intra.verbs"), asan=NO_DEVICE)) == []
    assert rdma(said(dev=NO_DEVICE, vm=FAILED.format(IN_THE_LAB))) == []
    assert rdma(said("--part", dev=PASSED.format("a"))) == []


if __name__ == "__main__":
    main()
