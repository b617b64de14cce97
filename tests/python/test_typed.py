"""mypy --strict on the package, as each Python sees it that it is for, and what it costs to import.

Covers: python/tombolo/__init__.py
"""

import subprocess
import sys

import packages

packages.run_in("torch")

from harness import expect, main, scenario  # noqa: E402

PYTHON = packages.SOURCE / "python"


@scenario
def the_package_is_typed(lab):
    """P10: strict, for 3.10 to 3.14."""
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--python-version", version, "--cache-dir",
                               str(lab.dir / "mypy")], cwd=PYTHON, capture_output=True, text=True, check=False)
        expect(f"for {version}: {done.stdout}{done.stderr}", done.returncode, 0)


@scenario
def an_import_loads_nothing_that_it_does_not_need(lab):
    """No framework, no event loop, no library, no regular expressions: what makes an import slow."""
    words = "import sys, tombolo; print(*[m for m in ('torch', 'numpy', 'asyncio', 'socket', 'subprocess', 'inspect') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-c", words], cwd=PYTHON, capture_output=True, text=True, check=True)
    expect("loaded", done.stdout.split(), [])


if __name__ == "__main__":
    sys.exit(main())
