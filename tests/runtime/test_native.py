"""The native tests, compiled with sanitizers: mutated bundles, and starts from several threads."""

from pathlib import Path

import pytest

from tests.runtime.builds import MEMORY, NATIVE, THREADS, compile_native, needs_sanitizer, run
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
    out = run(fuzzer, bundles[0], count, 1, "damaged")
    assert out.startswith(f"{count} bundles, 0 usable, 0 changed a call")


@pytest.mark.parametrize("count", BUNDLES)
def test_wrong_bundles_with_a_right_sum_do_no_harm(
    count: int, fuzzer: Path, bundles: tuple[Path, Path]
) -> None:
    out = run(fuzzer, bundles[0], count, 2, "sealed")
    # Some mutations leave a bundle that is usable; otherwise nothing behind the CRC was tested.
    usable = int(out.split(" bundles, ")[1].split(" usable")[0])
    assert count // 10 < usable < count * 9 // 10


def test_wrong_bundles_of_sums_that_do_not_move_do_no_harm(
    fuzzer: Path, bundles: tuple[Path, Path]
) -> None:
    out = run(fuzzer, bundles[0].with_name("invariant.tuccl"), 5_000, 3, "sealed")
    usable = int(out.split(" bundles, ")[1].split(" usable")[0])
    assert 500 < usable < 4_500


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
