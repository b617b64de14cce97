"""Makes the wheel and the sdist (PEP 517), with nothing but Python's own library and CMake.

The wheel is one for all Pythons, as nothing of it is compiled against Python: the package, and in
tombolo/native libtombolo, tombolo and tombolod. deploy/wheel also puts in what they need. The
sdist has the sources of the whole tree, in source/.

TOMBOLO_BUILD_DIR names a build folder to take the three files from; it was configured with
TB_VERBS_AT_RUN_TIME=ON."""

import base64
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE / "source" if (HERE / "source").is_dir() else HERE.parent
PARTS = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "base", "bench", "deploy", "gateway", "include", "intra", "sim", "tests/gpu", "wan")
NATIVE = {"intra/client/libtombolo.so": "libtombolo.so.0", "gateway/cli/tombolo": "tombolo", "gateway/daemon/tombolod": "tombolod"}


def _version():
    return re.search(r"project\(tombolo VERSION ([0-9.]+)", (TREE / "CMakeLists.txt").read_text()).group(1)


def _project(key):
    return re.search(rf'^{key} = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.M).group(1)


def _metadata():
    head = {"Metadata-Version": "2.1", "Name": "tombolo", "Version": _version(), "Summary": _project("description"),
            "License": _project("license"), "Requires-Python": _project("requires-python"), "Description-Content-Type": "text/markdown"}
    return "".join(f"{key}: {value}\n" for key, value in head.items()) + "\n" + (HERE / "README.md").read_text()


def _entry_points():
    found = []
    for table in re.finditer(r'^\[project\.(scripts|entry-points\."([\w.]+)")\]\n((?:\w+ = .*\n)+)', (HERE / "pyproject.toml").read_text(), re.M):
        found.append(f"[{table.group(2) or 'console_scripts'}]\n" + table.group(3).replace('"', ""))
    return "\n".join(found)


def _tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def _native(folder):
    """The three files, stripped, in a folder."""
    build = os.environ.get("TOMBOLO_BUILD_DIR")
    if build is None:
        build = str(folder / "build")
        subprocess.run(["cmake", "-S", TREE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DBUILD_TESTING=OFF",
                        "-DTB_VERBS_AT_RUN_TIME=ON"], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "tombolo_client", "tombolo", "tombolod"], check=True)
    files = {}
    for path, name in NATIVE.items():
        stripped = folder / name
        subprocess.run(["strip", "--strip-unneeded", "-o", stripped, pathlib.Path(build, path)], check=True)
        files[f"tombolo/native/{name}"] = stripped.read_bytes()
    return files


def _info():
    """The folder of what installers read, and its files but RECORD."""
    folder = f"tombolo-{_version()}.dist-info"
    return folder, {f"{folder}/METADATA": _metadata().encode(), f"{folder}/entry_points.txt": _entry_points().encode(),
                    f"{folder}/LICENSE": (TREE / "LICENSE").read_bytes(),
                    f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tombolo\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder, files = _info()
    pathlib.Path(metadata_directory, folder).mkdir()
    for path, content in files.items():
        pathlib.Path(metadata_directory, path).write_bytes(content)
    return folder


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        files = _native(pathlib.Path(folder))
    for path in sorted((HERE / "tombolo").rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            files[str(path.relative_to(HERE))] = path.read_bytes()
    info, facts = _info()
    files |= facts
    record = "".join(f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}\n"
                     for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"tombolo-{_version()}-{_tag()}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)) # the same bytes whenever it is made
            entry.external_attr = (0o755 if path.startswith("tombolo/native/") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


def _sources():
    """The tree's files: those that git knows, or all of an unpacked sdist."""
    listed = subprocess.run(["git", "-C", TREE, "ls-files", "-z", *PARTS], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for path in listed.stdout.decode().split("\0") if path and (TREE / path).is_file()]
    return [str(path.relative_to(TREE)) for part in PARTS for path in ([TREE / part] if (TREE / part).is_file() else (TREE / part).rglob("*"))
            if path.is_file()]


def build_sdist(sdist_directory, config_settings=None):
    base = f"tombolo-{_version()}"
    files = {f"source/{path}": TREE / path for path in _sources()}
    for path in (HERE / "pyproject.toml", HERE / "build_backend.py", HERE / "README.md", *sorted((HERE / "tombolo").rglob("*"))):
        if path.is_file() and "__pycache__" not in path.parts and "native" not in path.parts:
            files[str(path.relative_to(HERE))] = path
    with tarfile.open(pathlib.Path(sdist_directory, f"{base}.tar.gz"), "w:gz") as out:
        info = tarfile.TarInfo(f"{base}/PKG-INFO")
        content = _metadata().encode()
        info.size = len(content)
        out.addfile(info, io.BytesIO(content))
        for name, path in sorted(files.items()):
            out.add(path, f"{base}/{name}", recursive=False)
    return f"{base}.tar.gz"


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Not for this package: PYTHONPATH=python and TOMBOLO_LIBRARY do the same."""
    raise NotImplementedError("set PYTHONPATH to this folder, and TOMBOLO_LIBRARY to a libtombolo.so")


if shutil.which("cmake") is None and "TOMBOLO_BUILD_DIR" not in os.environ:
    raise SystemExit("tombolo: cmake is missing: deploy/setup installs what the build needs")
