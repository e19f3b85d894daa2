"""Choices per call during a search: records of entries, checked as those of a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.builds import (
    MEMORY,
    NATIVE,
    PLANS,
    compile_native,
    fuzz,
    needs_sanitizer,
)
from tests.runtime.executor_tables import chosen_table

pytestmark = pytest.mark.long


def choice_fuzzer_of(folder: Path) -> Path:
    """Return the fuzzer, with the executor's source that takes a choice."""
    needs_sanitizer(folder, *MEMORY)
    sources = [NATIVE / "fuzz_choose.cc", *PLANS]
    return compile_native(folder / "fuzz_choose", sources, *MEMORY)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return choice_fuzzer_of(tmp_path_factory.mktemp("fuzz_choose"))


def test_mutated_choices_are_judged_as_entries_and_do_no_harm(fuzzer: Path, tmp_path: Path) -> None:
    table = tmp_path / "chosen.tuccl"
    table.write_bytes(chosen_table())
    _, taken, rules = fuzz(fuzzer, table, 20_000, 1)
    assert 0.25 < rules <= taken < 0.9
