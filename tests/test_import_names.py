"""The project's packages have common names: what happens beside others of the same names."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from tuccl import PACKAGES
from tuccl.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]
COMMAND = Path(sys.executable).with_name("tuccl")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with packages of another project that have the names of ours."""
    for name in set(PACKAGES) - {"tuccl"}:
        package = tmp_path / "foreign" / name
        package.mkdir(parents=True)
        text = f'raise ImportError("{name} of another project was imported")\n'
        (package / "__init__.py").write_text(text, encoding="utf-8")
    return tmp_path / "foreign"


def refused(done: subprocess.CompletedProcess[str], foreign: Path) -> bool:
    """Whether the process named the foreign folder in one line and ended."""
    one_line = done.stderr.count("\n") == 1 and f"lookup_tables in {foreign}" in done.stderr
    return one_line and done.returncode == ExitCode.ENVIRONMENT and not done.stdout


def run(words: list[str | Path], cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path:
        environment["PYTHONPATH"] = path
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )


def test_the_build_takes_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["scikit-build"]["wheel"]["packages"] == list(PACKAGES)


def test_the_installation_brings_these_packages() -> None:
    try:
        installed = files("tuccl") or []
    except PackageNotFoundError:
        pytest.skip("tuccl is not installed in this environment")
    folders = {path.parts[0] for path in installed if len(path.parts) > 1 and path.parts[0] != ".."}
    assert {name for name in folders if not name.endswith(".dist-info")} <= set(PACKAGES)


# -S: without the finder of an editable install, which puts this project's packages first.
def test_a_foreign_package_in_the_working_directory_is_named(foreign: Path) -> None:
    done = run([sys.executable, "-S", "-m", "tuccl", "--help"], foreign, str(ROOT))
    assert refused(done, foreign)


def test_a_foreign_package_on_the_path_is_named(foreign: Path, tmp_path: Path) -> None:
    path = f"{foreign}{os.pathsep}{ROOT}"
    assert refused(
        run([sys.executable, "-S", "-P", "-m", "tuccl", "init"], tmp_path, path), foreign
    )


def test_a_foreign_package_that_is_installed_is_named(foreign: Path, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path[:0] = [{str(foreign)!r}, {str(ROOT)!r}]\n"
        "import tuccl\n"
        "try: tuccl.read_topology\n"
        "except ImportError as error: print(error)\n"
    )
    done = run([sys.executable, "-S", "-c", program], tmp_path)
    assert f"lookup_tables in {foreign}" in done.stdout
    assert done.returncode == 0


@pytest.mark.skipif(not COMMAND.exists(), reason="tuccl is not installed in this environment")
@pytest.mark.long
def test_the_command_and_its_workers_tune_beside_foreign_packages(
    foreign: Path, tmp_path: Path
) -> None:
    backend = ("--backend", "sockets", "--budget", "2s")
    words = ("--topology", "shipped:h200-4gpu", "--operations", "all_gather", *backend)
    sizes = ("--min-size", "4K", "--max-size", "4K", "--workspace", str(tmp_path / "workspace"))
    done = run([COMMAND, "init", *words, *sizes], foreign)
    assert done.returncode == 0, done.stderr
    assert "all_gather" in done.stdout
