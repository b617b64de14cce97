"""The wheel in a fresh environment, the sdist that makes it, and environments of tests.

Covers: python/tombolo/programs.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import packages

packages.run_in("torch")

from harness import Skipped, expect, main, scenario  # noqa: E402

PYTHON = packages.SOURCE / "python"
NEVER = ("libibverbs", "librdmacm")  # opened at run time: one that is carried along does not find its providers
TEN_LINES = """
import array, tombolo
weights, replica = {"w": array.array("f", range(9))}, {"w": array.array("f", bytes(36))}
version = tombolo.publish("policy", 1, weights)
with tombolo.follow("policy", into=replica) as reader:
    print(reader.next(timeout=60))
assert weights == replica
print(tombolo.__file__, tombolo.library_version())
"""


def run(*argv, **kwargs):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, **kwargs)
    expect(f"{argv[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}", done.returncode, 0)
    return done.stdout


def installed(lab, wheel, env):
    """A fresh environment with the wheel alone: its folder of programs."""
    run(sys.executable, "-m", "venv", lab.dir / "fresh")
    run(lab.dir / "fresh/bin/pip", "install", "-q", "--no-index", wheel, env=env)
    return lab.dir / "fresh/bin"


@scenario
def ten_lines_run_in_a_fresh_environment(lab):
    """P1 P2: the wheel has library and programs, and what they need. It runs from any folder."""
    raw, out = lab.dir / "raw", lab.dir / "out"
    raw.mkdir()
    env = {key: value for key, value in os.environ.items() if key not in ("TOMBOLO_LIBRARY", "PYTHONPATH")}
    sys.path.insert(0, str(PYTHON))
    os.environ["TOMBOLO_BUILD_DIR"] = str(packages.BUILD)
    import build_backend
    name = build_backend.build_wheel(raw)
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", out, *(f"--exclude={lib}.so.1" for lib in NEVER), raw / name,
        env=dict(env, PATH=f"{pathlib.Path(sys.executable).parent}:{env['PATH']}"))
    wheel = next(out.glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    expect("native", {f"tombolo/native/{n}" for n in ("libtombolo.so.0", "tombolo", "tombolod")} <= set(names), True)
    expect("libraries that it carries", any("libuv" in name for name in names), True)
    expect("libraries that it must not carry", [name for name in names if any(n in name for n in NEVER)], [])
    expect("for glibc", wheel.name.startswith("tombolo-") and "manylinux_2_" in wheel.name, True)
    programs = installed(lab, wheel, env)
    expect("version", "0.1.0" in run(programs / "tombolo", "--version", env=env), True)
    expect("help", "--config" in run(programs / "tombolod", "--help", env=env), True)
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    said = run(programs / "python", "-c", TEN_LINES, cwd=lab.dir, env=dict(env, TOMBOLO_GATEWAY=f"unix:{site.session_socket}"))
    expect("from the wheel", str(lab.dir / "fresh") in said, True)
    done = subprocess.run([programs / "python", "-c", "import tombolo; tombolo.library_version()"], capture_output=True, text=True,
                          env=dict(env, TOMBOLO_LIBRARY="/nowhere/libtombolo.so"), check=False)
    expect(f"a library that is named wins: {done.stderr}", (done.returncode, "/nowhere/libtombolo.so" in done.stderr), (1, True))


@scenario
def the_sdist_makes_the_wheel(lab):
    """P10: with nothing but the sdist, CMake and what deploy/setup installs. Nothing links RDMA's libraries."""
    sys.path.insert(0, str(PYTHON))
    import build_backend
    if subprocess.run(["readelf", "--version"], capture_output=True, check=False).returncode != 0:
        raise Skipped("no readelf here")
    sdist = lab.dir / build_backend.build_sdist(lab.dir)
    env = {key: value for key, value in os.environ.items() if key not in ("TOMBOLO_LIBRARY", "TOMBOLO_BUILD_DIR")}
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--wheel-dir", lab.dir, sdist, env=env)
    wheel = next(lab.dir.glob("*.whl"))
    zipfile.ZipFile(wheel).extractall(lab.dir / "unpacked")
    for name in ("libtombolo.so.0", "tombolo", "tombolod"):
        needed = run("readelf", "-d", lab.dir / "unpacked/tombolo/native" / name)
        expect(f"{name} links", [lib for lib in NEVER if lib in needed], [])


FAKE = """#!/bin/sh
case $2 in
venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/pip" && cp "$0" "$3/bin/python" ;;
"import broken") echo "ImportError: libbroken.so is not here" >&2; exit 1 ;;
import*) ;;
*sys.version_info*) echo 3.99 ;;
esac
"""


@scenario
def an_environment_is_there_when_its_package_imports(lab):
    """P10: one that pip made and that no program can use skips its tests, and says why. python3 and pip are stubs."""
    folder, programs = lab.dir / "frameworks", lab.dir / "bin"
    folder.mkdir()
    programs.mkdir()
    (programs / "python3").write_text(FAKE)
    (programs / "python3").chmod(0o755)
    shutil.copy(packages.SOURCE / "tests/frameworks/environment", folder)
    env = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", TOMBOLO_PYTHON_CACHE=str(lab.dir / "cache"))
    for name, *wanted in (("sound", 0, 0), ("broken", 77, 77)):
        (folder / f"{name}.txt").write_text("")
        for make, code in zip((["--make"], []), wanted):
            done = subprocess.run([folder / "environment", *make, name], env=env, capture_output=True, text=True, check=False)
            expect(f"{name} {make}: {done.stderr}", (done.returncode, done.stdout.endswith("bin/python\n")), (code, code == 0))
            if make and code:
                expect(done.stderr, "\"import broken\" fails" in done.stderr and "libbroken.so" in done.stderr, True)


if __name__ == "__main__":
    sys.exit(main())
