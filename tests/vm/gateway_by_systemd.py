"""gateway_by_systemd.py: a gateway's unit from the package, by a systemd that is process 1 of the VM lab: started, reloaded,
upgraded, killed, without a sign of life. Exit codes: 0 passed, 1 failed, 77 skipped with its reason.

Covers: sim/vm/run gateway/daemon/service_manager.c base/net/kept_listeners.c
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TB_BUILD_DIR"])
TIME_S = 1500
SKIP = 77


def packages(folder):
    """(one, the same with a higher version), of this build."""
    subprocess.run([SOURCE / "deploy/pack", BUILD, folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none",
                    "-D", "CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS=OFF"], check=True)
    old, = folder.glob("tombolo_*.deb")
    tree, new = folder / "tree", folder / "new.deb"
    subprocess.run(["dpkg-deb", "-R", old, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1.1", control.read_text(encoding="utf-8")), encoding="utf-8")
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, new], check=True, stdout=subprocess.DEVNULL)
    return old, new


def main():
    missing = [program for program in ("cpack", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        print(f"skipped: no {' '.join(missing)} here")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([SOURCE / "sim/vm/run", "--systemd", "--memory", "2048", "--timeout", str(TIME_S), "--", "bash",
                               SOURCE / "tests/vm/gateway_by_systemd.sh", *packages(pathlib.Path(folder))],
                              stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    if done.returncode == SKIP:
        return SKIP
    return 0 if done.returncode == 0 and done.stdout.endswith("ALL DONE\n") else 1


if __name__ == "__main__":
    sys.exit(main())
