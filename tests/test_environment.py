"""Test scripts/python_environment.sh: it installs changes, repairs damage and reports its steps.

A package of one file with a build backend that counts its calls stands in for TuCCL.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["cmake"]
[project]
name = "small"
version = "1"
[tool.scikit-build.wheel]
packages = ["small"]
"""
BACKEND = """
import os, time, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = build_wheel(folder)
    with zipfile.ZipFile(os.path.join(folder, name), "a") as wheel:
        wheel.writestr("small.pth", os.getcwd())
    return name

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with open("builds.log", "a") as log:
        log.write("built\\n")
    while os.path.exists("wait"):
        time.sleep(0.05)
    if os.path.exists("broken"):
        raise SystemExit("broken")
    info, name = "small-1.dist-info", "small-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.write("small/code.py")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\n"
                       "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
MAKE = [
    "bash",
    "-euo",
    "pipefail",
    "-c",
    '. scripts/python_environment.sh; make_environment .venv "$0"',
]


class Checkout:
    """A checkout of the small package with the real scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("pyproject.toml", PYPROJECT)
        self.write("cmake/backend.py", BACKEND)
        self.write("small/code.py", "NUMBER = 1\n")
        (root / "scripts").mkdir()
        for name in ("python_environment.sh", "environment_stamp.py"):
            shutil.copy(SCRIPTS / name, root / "scripts")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def make(self, what: str = ".") -> subprocess.CompletedProcess[str]:
        command = [*MAKE, what]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)

    def make_quietly(self, what: str = ".") -> str:
        """Make the environment with nothing on standard output; return the standard error."""
        done = self.make(what)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr

    @property
    def is_fresh(self) -> bool:
        """Whether the environment holds this checkout, as make_environment asks."""
        words = ("scripts/environment_stamp.py", "fresh", ".venv/tuccl-stamp", ".")
        command = [".venv/bin/python", "-I", *words]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode == 0

    @property
    def stamp(self) -> Path:
        return self.root / ".venv" / "tuccl-stamp"

    @property
    def builds(self) -> int:
        log = self.root / "builds.log"
        return log.read_text().count("built") if log.exists() else 0

    @property
    def number(self) -> int:
        """NUMBER of the installed package."""
        command = [".venv/bin/python", "-I", "-c", "import small.code; print(small.code.NUMBER)"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return int(done.stdout)

    @property
    def packages(self) -> Path:
        (found,) = self.root.glob(".venv/lib/python*/site-packages")
        return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Installed once."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    said = checkout.make_quietly().splitlines()
    assert [line.split()[0] for line in said] == ["creating", "installing", "installed"]
    assert "compiling" in said[1]
    assert said[2].endswith(" s")
    assert (checkout.builds, checkout.number) == (1, 1)
    return checkout


def test_what_did_not_change_is_not_installed_again(template: Checkout) -> None:
    builds = template.builds
    started = time.monotonic()
    assert template.make_quietly() == ""
    assert time.monotonic() - started < 20
    assert template.builds == builds


def test_compiled_files_beside_the_sources_are_no_change(template: Checkout) -> None:
    template.write("small/__pycache__/code.cpython-311.pyc", "compiled")
    (template.root / "tests").mkdir(exist_ok=True)
    template.write("tests/test_code.py", "")
    assert template.make_quietly() == ""


@pytest.mark.parametrize(
    "name", ["small/code.py", "small/further.py", "cmake/x.cmake", "README.md"]
)
def test_a_file_that_changed_or_is_new_is_noticed(template: Checkout, name: str) -> None:
    template.make_quietly()
    fresh = [template.is_fresh]
    file = template.root / name
    before = file.read_text() if file.exists() else None
    template.write(name, "# Changed.\n")
    fresh.append(template.is_fresh)
    if before is None:
        file.unlink()
    else:
        file.write_text(before)
    assert [*fresh, template.is_fresh] == [True, False, True]


def test_a_changed_tree_is_installed_into_the_same_environment(template: Checkout) -> None:
    number, builds = template.number + 1, template.builds
    template.write("small/code.py", f"NUMBER = {number}\n")
    said = template.make_quietly()
    assert "creating" not in said
    assert (template.builds, template.number) == (builds + 1, number)


def test_an_editable_installation_is_made_again_for_what_is_compiled(template: Checkout) -> None:
    template.make_quietly("-e .")
    template.write("small/code.py", f"NUMBER = {template.number + 1}\n")
    assert template.make_quietly("-e .") == ""
    template.write("small/code.c", "int number = 1;\n")
    assert "installed" in template.make_quietly("-e .")
    assert "installed" in template.make_quietly(".")


def is_whole(checkout: Checkout) -> bool:
    command = [".venv/bin/python", "-I", "scripts/environment_stamp.py", "whole"]
    done = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode == 0


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("small/code.py", None),
        ("pip/__main__.py", None),
        ("pip/__main__.py", ""),
        ("small-1.dist-info/RECORD", None),
    ],
)
def test_a_file_that_is_gone_or_was_cut_off_is_noticed(
    template: Checkout, name: str, rest: str | None
) -> None:
    template.make_quietly()
    assert is_whole(template)
    file = template.packages / name
    content = file.read_bytes()
    file.unlink()
    if rest is not None:
        file.write_text(rest)
    assert not is_whole(template)
    file.write_bytes(content)
    assert is_whole(template)


def test_a_distribution_that_is_gone_is_noticed(template: Checkout) -> None:
    template.make_quietly()
    shutil.rmtree(template.packages / "small-1.dist-info")
    shutil.rmtree(template.packages / "small")
    builds = template.builds
    assert "creating" not in template.make_quietly()
    assert template.builds == builds + 1
    assert template.number > 0


@pytest.mark.slow
def test_a_broken_environment_is_made_again(template: Checkout) -> None:
    template.make_quietly()
    (template.packages / "small" / "code.py").unlink()
    assert template.make_quietly().startswith("files of .venv are missing: making it again")
    assert template.number > 0
    assert template.make_quietly() == ""


@pytest.mark.slow
def test_another_python_makes_the_environment_again(template: Checkout) -> None:
    python = template.root / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho 3.0 /other\n")
    python.chmod(0o755)
    assert "making it again" in template.make_quietly()
    assert template.make_quietly() == ""


def test_an_installation_that_failed_leaves_no_stamp(template: Checkout) -> None:
    template.write("broken", "")
    template.write("small/code.py", "NUMBER = 105\n")
    done = template.make()
    assert done.returncode == 3
    assert done.stderr.rstrip().endswith("installing . into .venv failed")
    assert not template.stamp.exists()
    (template.root / "broken").unlink()
    template.make_quietly()
    assert template.number == 105


def test_an_installation_that_was_killed_leaves_no_stamp(template: Checkout) -> None:
    template.write("small/code.py", "NUMBER = 106\n")
    template.write("wait", "")
    builds = template.builds
    with subprocess.Popen([*MAKE, "."], cwd=template.root, process_group=0) as process:
        deadline = time.monotonic() + 60
        while template.builds == builds and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert not template.stamp.exists()
    (template.root / "wait").unlink()
    template.make_quietly()
    assert (template.number, template.stamp.exists()) == (106, True)
