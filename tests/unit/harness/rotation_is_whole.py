"""rotation_is_whole.py: the parts of a list of tests/rotation are the list; each test has its turn.

Covers: tests/rotation.py tests/rotation
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
import rotation  # noqa: E402

SUITES = ("asan", "dev", "tsan", "vm")
COMMITS = [f"{i:040x}" for i in range(64)]  # each place of twelve comes among them
NOT_SANITIZED = "^(perf|static|vm|long)$"  # tests/run leaves these out of asan; those of tsan have its label


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got}, and {wanted} was expected")


def names_of(build, *options):
    done = subprocess.run(["ctest", "--test-dir", build, "-N", *options], stdout=subprocess.PIPE, text=True, check=True)
    words = [line.split() for line in done.stdout.splitlines()]
    return [w[-1] for w in words if w[:1] == ["Test"] and w[1].startswith("#")]


def parts_are_the_list(lists, names):
    for suite in SUITES:
        for one, found in rotation.members(lists, suite, names):
            parts = [rotation.part(one, found, place) for place in range(one.parts)]
            expect(f"{suite} {one.names}: its parts together", sorted(sum(parts, [])), sorted(found))
            spread = max(map(len, parts)) - min(map(len, parts))
            expect(f"{suite} {one.names}: parts of nearly one size", spread <= 1, True)


def each_has_its_turn(lists, names, sanitized):
    for suite in SUITES:
        out = [set(rotation.waiting(lists, suite, commit, names)) for commit in COMMITS]
        expect(f"{suite}: tests that never run", sorted(set.intersection(*out)), [])
        again = rotation.waiting(lists, suite, COMMITS[0], reversed(names))
        expect(f"{suite}: the same commit", again, sorted(out[0]))
    others = {name for suite in ("asan", "tsan") for _, found in rotation.members(lists, suite, sanitized) for name in found}
    for commit in COMMITS:
        expect("tests that wait in dev and under a sanitizer", others & set(rotation.waiting(lists, "dev", commit, names)), set())


def each_line_names_tests(lists, names):
    for one in lists:
        for pattern in one.names:
            if pattern.startswith("vm.") and "vm.faults_that_rdma_alone_can_have" not in names:
                continue  # built without RDMA
            found = rotation.fnmatch.filter(names, pattern)
            expect(f"tests/rotation: {pattern} names a test", bool(found), True)


def a_slow_test_without_a_list_is_named(lists):
    took = {"system.new": 12, "system.quick": 2, "system.lag_of_workers": 30, "unit.base.rate": 40}
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as out:
        cases = "".join(f'<testcase name="{name}" time="{s}.5"/>' for name, s in took.items())
        out.write(f"<testsuite>{cases}</testsuite>")
        out.flush()
        expect("slow tests", rotation.slow(lists, "asan", out.name), {"system.new": 12.5})


def main():
    lists, names = rotation.read(), names_of(os.environ["TB_BUILD_DIR"])
    made = [rotation.List(["asan"], 3, ["a.*"]), rotation.List(["asan", "tsan"], 2, ["*"])]
    sanitized = names_of(os.environ["TB_BUILD_DIR"], "-LE", NOT_SANITIZED)
    few = [f"a.{i}" for i in range(10)] + ["b", "c", "d"]
    for given, tests, some in ((lists, names, sanitized), (made, few, few)):
        parts_are_the_list(given, tests)
        each_has_its_turn(given, tests, some)
    each_line_names_tests(lists, names)
    a_slow_test_without_a_list_is_named(lists)
    print(f"{len(lists)} lists, {len(names)} tests")


if __name__ == "__main__":
    main()
