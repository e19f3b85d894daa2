"""The plugin of this checkout, compiled once for all tests of a run."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kept_builds import ROOT, compiler_words, content_sum, kept
from tests.runtime.builds import CC, NATIVE, RUNTIME, compile_native
from tests.runtime.plugin_abi import Plugin


@pytest.fixture(scope="session")
def plugin_sources() -> list[Path]:
    return sorted(RUNTIME.glob("*.c"))


@pytest.fixture(scope="session")
def plugin_file() -> Path:
    if shutil.which(CC) is None:
        pytest.skip(f"no C compiler: {CC}")
    name, script = "libnccl-tuner-tuccl.so", ROOT / "scripts" / "make" / "build_library.sh"

    def build(folder: Path) -> None:
        command = [str(script), "plugin", str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    everything = [script, *sorted(RUNTIME.glob("*.[ch]"))]
    return kept(content_sum(compiler_words(CC), everything), build) / name


@pytest.fixture(scope="session")
def logger_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("logger") / "liblogger.so"
    return compile_native(output, [NATIVE / "log_to_callback.c"], "-shared")


@pytest.fixture(autouse=True)
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing from outside, and a host without GPUs: the tests say the same on every machine."""
    for variable in (
        "TUCCL_BUNDLE",
        "TUCCL_BUNDLE_CRC",
        "TUCCL_CONTROL",
        "TUCCL_EXPLAIN",
        "TUCCL_NCCL",
        "NCCL_ALGO",
        "NCCL_PROTO",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TUCCL_SYSFS", str(tmp_path / "no-sysfs"))


@pytest.fixture
def plugin(plugin_file: Path, logger_library: Path, tmp_path: Path) -> Plugin:
    """A copy, which the loader takes for another library: with warnings not yet given."""
    copy = tmp_path / plugin_file.name
    shutil.copyfile(plugin_file, copy)
    return Plugin(copy, logger_library)
