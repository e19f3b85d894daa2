import shutil
import sys
from pathlib import Path

import pytest

import tuccl.runtime
from probes.nvidia.gpu_programs import Build, build_name
from tuccl.errors import HostError
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME, executor_path, executor_program, plugin_path


def test_the_plugin_beside_the_sources_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PLUGIN_NAME).write_bytes(b"")
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    assert plugin_path() == tmp_path / PLUGIN_NAME


def test_the_plugin_of_an_editable_install_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages" / "tuccl" / "runtime" / PLUGIN_NAME
    installed.parent.mkdir(parents=True)
    installed.write_bytes(b"")
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path / "sources")])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    assert plugin_path() == installed


def test_a_source_tree_says_how_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(HostError, match=r"pip install \.") as caught:
        plugin_path()
    assert "\n" not in str(caught.value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package with the executor's sources, and without builds anywhere."""
    package = tmp_path / "installed" / "tuccl" / "runtime"
    sources = Path(*tuccl.runtime.__path__)
    shutil.copytree(sources, package, ignore=shutil.ignore_patterns("built", "__pycache__"))
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(package)])
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return package


def put_build(place: Path, *architectures: str) -> Path:
    """A build of the sources as they are now."""
    folder = place / build_name(executor_program(), architectures)
    folder.mkdir(parents=True)
    (folder / EXECUTOR_NAME).write_bytes(b"")
    return folder / EXECUTOR_NAME


@pytest.mark.usefixtures("package")
def test_an_executor_that_was_not_built_names_the_command_that_builds_it() -> None:
    with pytest.raises(HostError, match="`tuccl build-executor`") as caught:
        executor_path()
    assert "\n" not in str(caught.value)


def test_the_executor_for_most_architectures_is_taken(package: Path, tmp_path: Path) -> None:
    in_package = put_build(package / "built", "80")
    assert executor_path() == in_package
    of_user = put_build(tmp_path / "cache" / "tuccl", "80", "90")
    assert executor_path() == of_user
    put_build(package / "built", "90")
    assert executor_path() == of_user


def test_an_editable_install_has_its_executor_in_site_packages(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package.is_dir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    built = put_build(tmp_path / "site-packages" / "tuccl" / "runtime" / "built", "90")
    assert executor_path() == built


@pytest.mark.parametrize(
    "name", ["program.c", "machine.h", "executor/patterns.cuh", "executor/exports.map"]
)
def test_an_executor_of_other_sources_is_never_taken(package: Path, name: str) -> None:
    built = put_build(package / "built", "90")
    assert executor_path() == built
    with (package / name).open("a") as source:
        source.write("\n")
    with pytest.raises(HostError):
        executor_path()


def test_a_source_that_the_executor_is_not_made_of_does_not_matter(package: Path) -> None:
    built = put_build(package / "built", "90")
    with (package / "tuner_plugin.c").open("a") as source:
        source.write("\n")
    assert executor_path() == built


@pytest.mark.parametrize(
    ("has", "asked", "serves"),
    [
        (("80", "90"), ("90",), True),
        (("80-real", "90-virtual"), ("80",), True),
        (("80-real", "90-virtual"), ("90",), False),  # PTX alone is compiled when it is loaded.
        (("90",), ("80", "90"), False),
        (("90a",), ("90",), False),
        (("all-major",), ("90",), False),
    ],
)
def test_a_build_serves_what_it_has_machine_code_for(
    has: tuple[str, ...], asked: tuple[str, ...], serves: bool
) -> None:
    assert Build(Path("any"), has).serves(asked) is serves
