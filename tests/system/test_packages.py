#!/usr/bin/env python3
"""The contents of the packages, how their units are confined, and that they install, serve and go again.

Covers: gateway/daemon/service_manager.c base/net/kept_listeners.c
"""

import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys

from harness import BUILD, SOURCE, TOMBOLOD, Failed, Process, Skipped, expect, main, scenario, wait_for

DEPLOY = SOURCE / "deploy"
PACKAGES = {
    "tombolo": ("usr/bin/tombolo", "usr/bin/tombolod", "usr/bin/tombolo-web", "usr/lib/systemd/system/tombolod@.service",
                "usr/lib/systemd/system/tombolo-web.service", "usr/lib/sysusers.d/tombolo.conf", "usr/lib/tmpfiles.d/tombolo.conf",
                "usr/share/man/man1/tombolo.1", "usr/share/man/man1/tombolo-lag.1", "usr/share/man/man5/tombolo.yaml.5", "usr/share/man/man8/tombolod.8", "usr/share/bash-completion/completions/tombolo",
                "usr/share/zsh/vendor-completions/_tombolo", "usr/share/fish/vendor_completions.d/tombolo.fish", "usr/share/tombolo/demo"),
    "libtombolo0": ("usr/lib/*libtombolo.so.0", "usr/lib/*libtombolo.so.0.*"),
    "libtombolo-dev": ("usr/include/tombolo/tombolo.h", "usr/include/tombolo/version.h", "usr/lib/*libtombolo.so",
                       "usr/lib/*pkgconfig/tombolo.pc", "usr/lib/*cmake/tombolo/tomboloConfig.cmake"),
    "python3-tombolo": ("usr/lib/python3/dist-packages/tombolo/__init__.py", "usr/lib/python3/dist-packages/tombolo/py.typed"),
}


def run(*argv, **kwargs):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, **kwargs)
    expect(f"{argv[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}", done.returncode, 0)
    return done.stdout


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Skipped(f"no {program} here")


def contents(deb):
    """{path without ./: its mode and owner}, of the files."""
    rows = (line.split(None, 5) for line in run("dpkg-deb", "-c", deb).splitlines())
    return {row[5].split(" -> ")[0].removeprefix("./"): (row[0], row[1]) for row in rows if not row[0].startswith("d")}


@scenario
def packages_hold_what_they_name(lab):
    """Every installed file is in one package, for root, with a licence and a list of what is inside."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    run(DEPLOY / "pack", BUILD, lab.dir, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none",
        "-D", "CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS=OFF")
    seen = {}
    for package, wanted in PACKAGES.items():
        deb, = lab.dir.glob(f"{package}_*.deb")
        files = contents(deb)
        doc = f"usr/share/doc/{package}"
        for name in (*wanted, f"{doc}/copyright", f"{doc}/sbom.spdx.json"):
            if not any(fnmatch.fnmatchcase(path, name) for path in files):
                raise Failed(f"{package} has no {name}: {sorted(files)}")
        for path, (mode, owner) in files.items():
            expect(f"owner of {path}", owner, "root/root")
            expect(f"{path} is for others to read alone", mode[7] == "r" and (mode[0] == "l" or mode[8] == "-"), True)
            expect(f"{path} is in one package", seen.setdefault(path, package), package)
        sbom = json.loads(_of(deb, f"./{doc}/sbom.spdx.json"))
        ids = {part["SPDXID"] for part in sbom["packages"]}
        expect("the list", (sbom["spdxVersion"], {"SPDXRef-xxhash", "SPDXRef-openssl"} <= ids), ("SPDX-2.3", True))
        for relation in sbom["relationships"]:
            expect("relations name parts", relation["relatedSpdxElement"] in ids, True)
    tarball, = lab.dir.glob("tombolo-*.tar.gz")
    held = run("tar", "-tf", tarball).splitlines()
    expect("the tarball holds all of them", {name.partition("/")[2] for name in held if not name.endswith("/")}, set(seen))
    expect("python is python alone", [p for p in seen if seen[p] == "python3-tombolo" and p.endswith((".so", ".pyc"))], [])


def _of(deb, path):
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    return subprocess.run(["tar", "-xOf", "-", path], input=tar, capture_output=True, check=True).stdout


@scenario
def a_missing_program_is_named(lab):
    """P10: CPack without dpkg-shlibdeps makes packages that name no library, and says nothing of it."""
    programs = lab.dir / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "realpath", "mkdir", "git", "env", "tail"):
        if shutil.which(name):
            (programs / name).symlink_to(shutil.which(name))
    for name in ("cmake", "cpack", "ninja", "dpkg-deb", "file"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    for have, code, words in (((), 3, "no dpkg-shlibdeps here: deploy/setup installs it"), (("dpkg-shlibdeps",), 7, "the build failed")):
        for name in have:
            shutil.copy(programs / "file", programs / name)
        done = subprocess.run([DEPLOY / "packages", "--build", lab.dir / "build", lab.dir / "out"], env={**os.environ, "PATH": str(programs)},
                              capture_output=True, text=True, check=False)
        expect(f"deploy/packages: {done.stderr}", (done.returncode, words in done.stderr), (code, True))


@scenario
def units_are_confined(lab):
    """P8: systemd's own score of what a unit may do. RDMA needs devices, and scores a little more."""
    need("systemd-analyze")
    if "--offline" not in run("systemd-analyze", "--help"):
        raise Skipped("this systemd-analyze scores no files")
    units = lab.dir / "units"
    shutil.copytree(DEPLOY / "systemd", units)
    rdma = lab.dir / "rdma"
    shutil.copytree(DEPLOY / "systemd", rdma)
    (rdma / "tombolod@.service.d").mkdir()
    shutil.copy(DEPLOY / "systemd/rdma.conf", rdma / "tombolod@.service.d")
    for unit, most in ((units / "tombolod@.service", 15), (units / "tombolo-web.service", 15), (rdma / "tombolod@.service", 20)):
        said = run("systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={most}", unit)
        expect(f"{unit.name} is scored", "Overall exposure level" in said, True)


@scenario
def a_service_manager_is_told(lab):
    """P9: READY when it serves, a sign of life, RELOADING and READY by SIGHUP, STOPPING by SIGTERM."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(lab.dir / "notify"))
    manager.settimeout(0.05)
    heard = []

    def hears(word):
        try:
            heard.append(manager.recv(4096).decode().split("\n")[0])
        except TimeoutError:
            pass
        return word in heard

    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.env = {"NOTIFY_SOCKET": str(lab.dir / "notify"), "WATCHDOG_USEC": "1000000"}
    site.start(wait=False)
    wait_for("READY", lambda: hears("READY=1"))
    expect("it serves by then", site.control("status")["ok"], True)
    wait_for("a sign of life", lambda: hears("WATCHDOG=1"))
    heard.clear()
    site.daemon.popen.send_signal(1)
    wait_for("RELOADING", lambda: hears("RELOADING=1"))
    wait_for("READY again", lambda: hears("READY=1"))
    site.daemon.popen.terminate()
    wait_for("STOPPING", lambda: hears("STOPPING=1"))
    site.daemon.ended_by_us = True
    expect("exit code", site.daemon.ended(), 0)
    manager.close()


@scenario
def a_restart_refuses_no_connection(lab):
    """P9: listening sockets stay with the service manager. Clients of the pause are served by the next process."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(lab.dir / "notify"))
    manager.settimeout(0.05)
    stored = []

    def ready():
        with contextlib.suppress(TimeoutError):
            word, fds, _, _ = socket.recv_fds(manager, 4096, 1)
            if word.startswith(b"FDSTOREREMOVE=1"):
                stored.clear()
            stored.extend(fds)
            return word.startswith(b"READY=1")
        return False

    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.extra["session"] = {"listen": f"127.0.0.1:{site.worker_port}"}
    site.env = {"NOTIFY_SOCKET": str(lab.dir / "notify")}
    site.start(wait=False)
    wait_for("READY", ready)
    expect("it is kept that control, session and both ports listen", len(stored) >= 3, True)
    site.daemon.popen.terminate()
    site.daemon.ended_by_us = True
    expect("exit code", site.daemon.ended(), 0)

    # Nobody is there, and nobody is refused.
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(site.control_socket))
    client.sendall(b'{"schema": 1, "cmd": "status"}\n')
    socket.create_connection(("127.0.0.1", site.worker_port)).close()
    high = [os.dup2(fd, 100 + i) for i, fd in enumerate(stored)]  # out of the way of 3, 4, ...
    moves = " ".join(f"exec {3 + i}<&{fd};" for i, fd in enumerate(high))
    script = f'{moves} export LISTEN_PID=$$ LISTEN_FDS={len(high)}; exec "$@"'
    site.daemon = Process("tombolod-again", ["bash", "-c", script, "-", TOMBOLOD, "--config", site.dir / "tombolod.yaml"], lab.dir / "again.log",
                          env={**os.environ, **site.env}, pass_fds=high)
    lab.processes.append(site.daemon)
    client.settimeout(60)
    expect("the client of the pause is answered", json.loads(client.makefile().readline())["ok"], True)
    wait_for("READY", ready)
    expect("as many are kept again", len(stored), len(high))
    for fd in (*stored, *high):
        os.close(fd)
    client.close()
    manager.close()


@scenario
def the_library_keeps_its_abi(lab):
    """P9: functions that programs were linked against are there still. New functions may come."""
    need("abidw", "abidiff")
    if platform.machine() != "x86_64":
        raise Skipped("the recorded ABI is that of x86_64")
    recorded = pathlib.Path(__file__).parent / "abi/libtombolo.abi"
    library = BUILD / "intra/client/libtombolo.so"
    done = subprocess.run(["abidiff", "--no-added-syms", "--drop-private-types", "--exported-interfaces-only",
                           "--headers-dir2", SOURCE / "include/tombolo", recorded, library],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"abidiff says {done.returncode}: {done.stdout}{done.stderr}\nWhere that is meant: tests/system/abi/record")


BUILD_S = 1500  # a release build of four targets: two or three minutes on two cores that have nothing else to do


def _packages(lab, name, **environment):
    out = lab.dir / name
    run(DEPLOY / "packages", "--build", lab.dir / f"build-{name}", out, timeout=BUILD_S, env={**os.environ, **environment})
    return out


@scenario
def packages_are_the_same_again(lab):
    """Built twice in two folders, they have equal bytes. A compiler cache may have the first build's objects, not the second's."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    first = _packages(lab, "one")
    second = _packages(lab, "two", CMAKE_C_COMPILER_LAUNCHER="", CCACHE_DISABLE="1", LC_ALL="C", TZ="Asia/Tokyo")
    names = sorted(path.name for path in first.iterdir())
    expect("the same files", sorted(path.name for path in second.iterdir()), names)
    for name in names:
        digests = {hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in (first, second)}
        expect(f"bytes of {name}", len(digests), 1)


@scenario
def packages_install_serve_and_purge(lab):
    """In a fresh Debian: two gateways, a version by the command line and one by Python; then nothing of it is left."""
    need("mmdebstrap", "unshare", "cpack", "dpkg-shlibdeps")
    if os.getuid() != 0:
        raise Skipped("only root can do that")
    out = pathlib.Path(os.environ.get("TB_PACKAGES") or _packages(lab, "out"))
    root = lab.dir / "root"
    made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd-standalone-sysusers,systemd-standalone-tmpfiles",
                           "bookworm", root], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Skipped(f"mmdebstrap made no Debian: {made.stderr[-300:]}")
    shutil.copytree(out, root / "packages")
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child",
                           pathlib.Path(__file__).parent / "packages_in_chroot", root], capture_output=True, text=True, check=False)
    if done.returncode != 0 or "ALL DONE" not in done.stdout:
        raise Failed(f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
