"""The native tests, compiled with sanitizers: mutated bundles, and starts from several threads."""

from pathlib import Path

import pytest

from tests.runtime.builds import MEMORY, NATIVE, THREADS, compile_native, fuzz, needs_sanitizer, run
from tests.runtime.write_bundles import NATIVE_FACTS, native_table, write_bundles

pytestmark = pytest.mark.long


def build(
    tmp_path_factory: pytest.TempPathFactory, name: str, sources: list[Path], *flags: str
) -> Path:
    """Compile a native test with its harness; skip where the sanitizer is missing."""
    folder = tmp_path_factory.mktemp(name)
    needs_sanitizer(folder, *flags)
    files = [NATIVE / f"{name}.c", NATIVE / "harness.c", *sources]
    return compile_native(folder / name, files, *flags)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_bundles(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory, plugin_sources: list[Path]) -> Path:
    return build(tmp_path_factory, "fuzz_bundle", plugin_sources, *MEMORY)


BUNDLES = [20_000, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", BUNDLES)
def test_damaged_bundles_change_nothing(
    count: int, fuzzer: Path, bundles: tuple[Path, Path]
) -> None:
    _, usable, changed, _ = fuzz(fuzzer, bundles[0], count, 1, "damaged")
    assert usable == changed == 0


@pytest.mark.parametrize("count", BUNDLES)
def test_wrong_bundles_with_a_right_sum_do_no_harm(
    count: int, fuzzer: Path, bundles: tuple[Path, Path]
) -> None:
    # Some mutations leave a bundle that is usable; otherwise nothing behind the CRC was tested.
    assert 0.1 < fuzz(fuzzer, bundles[0], count, 2, "sealed")[1] < 0.9


def test_wrong_bundles_of_sums_that_do_not_move_do_no_harm(
    fuzzer: Path, bundles: tuple[Path, Path]
) -> None:
    kept = bundles[0].with_name("invariant.tuccl")
    assert 0.1 < fuzz(fuzzer, kept, 5_000, 3, "sealed")[1] < 0.9


@pytest.mark.parametrize("flags", [MEMORY, THREADS], ids=["memory", "threads"])
def test_concurrent_starts(
    flags: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    plugin_sources: list[Path],
    bundles: tuple[Path, Path],
) -> None:
    program = build(tmp_path_factory, "concurrent_init", plugin_sources, *flags)
    as_measured = {**native_table(1).profile, **(NATIVE_FACTS.variables or {})}
    assert "threads x 40 rounds agree" in run(program, *bundles, **as_measured)
