"""scripts/python_environment.sh installs what changed, and nothing else.

A package of one file with a build backend that counts its calls stands in for TuCCL. It is
installed by pip once; after that a module that counts its calls stands in for pip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["cmake"]
[project]
name = "small"
version = "1"
"""
BACKEND = """
import os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with open("builds.log", "a") as log:
        log.write("built\\n")
    info, name = "small-1.dist-info", "small-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.write("tuccl/code.py")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\n"
                       "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name

build_editable = build_wheel
"""
PIP = """
import os, sys

with open("builds.log", "a") as log:
    log.write("built\\n")
sys.exit(os.path.exists("broken"))
"""


class Checkout:
    """A checkout of the small package with the real script."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {name: os.environ[name] for name in ("PATH", "HOME")}
        self.write("pyproject.toml", PYPROJECT)
        self.write("cmake/backend.py", BACKEND)
        self.write("tuccl/code.py", "NUMBER = 1\n")
        (root / "scripts").mkdir()
        shutil.copy(SCRIPTS / "python_environment.sh", root / "scripts")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def make(self, what: str = ".") -> subprocess.CompletedProcess[str]:
        script = '. scripts/python_environment.sh; make_environment .venv "$0"'
        command = ["bash", "-euo", "pipefail", "-c", script, what]
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def builds(self, what: str = ".") -> int:
        """How often making the environment built the package."""
        log = self.root / "builds.log"
        log.unlink(missing_ok=True)
        done = self.make(what)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return log.read_text().count("built") if log.exists() else 0

    def number(self) -> int:
        """NUMBER of the installed package."""
        command = [".venv/bin/python", "-I", "-c", "import tuccl.code; print(tuccl.code.NUMBER)"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return int(done.stdout)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    assert (checkout.builds(), checkout.number()) == (1, 1)
    checkout.write("stand_in/pip.py", PIP)
    checkout.environment["PYTHONPATH"] = str(checkout.root / "stand_in")
    return checkout


def test_only_a_change_of_what_is_installed_or_builds_it_installs_again(checkout: Checkout) -> None:
    checkout.write("tuccl/__pycache__/code.cpython-311.pyc", "compiled")
    checkout.write("tests/test_code.py", "")
    assert checkout.builds() == 0
    for path in ("tuccl/code.py", "cmake/x.cmake"):
        checkout.write(path, "NUMBER = 2\n")
        assert (checkout.builds(), checkout.builds()) == (1, 0)


def test_an_editable_installation_is_made_again_for_what_is_compiled(checkout: Checkout) -> None:
    assert checkout.builds("-e .") == 1
    checkout.write("tuccl/code.py", "NUMBER = 3\n")
    assert checkout.builds("-e .") == 0
    checkout.write("tuccl/code.c", "int number = 1;\n")
    assert checkout.builds("-e .") == 1
    assert checkout.builds() == 1


def test_an_installation_that_failed_is_begun_again(checkout: Checkout) -> None:
    checkout.write("broken", "")
    checkout.write("tuccl/code.py", "NUMBER = 4\n")
    assert checkout.make().returncode == 3
    (checkout.root / "broken").unlink()
    assert (checkout.builds(), checkout.builds()) == (1, 0)
