"""Choices per call during a search: records of entries, checked as those of a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.conftest import RUNTIME
from tests.runtime.executor_tables import chosen_table
from tests.runtime.test_executor import EXECUTOR, compile_all, link
from tests.runtime.test_native import MEMORY, NATIVE, needs_runtime, run

pytestmark = pytest.mark.long

CC_SOURCES = (
    "bundle_rules.cc",
    "choose.cc",
    "decision.cc",
    "grid.cc",
    "uniform_plan.cc",
    "program_plan.cc",
    "statement_plan.cc",
    "staging_need.cc",
)
C_SOURCES = (
    *("bundle.c", "crc32.c"),
    *("program.c", "program_phases.c", "program_statements.c", "program_steps.c"),
)


def choice_fuzzer_of(folder: Path) -> Path:
    """Return the fuzzer, with the executor's source that takes a choice."""
    needs_runtime(folder, *MEMORY)
    sources = [NATIVE / "fuzz_choose.cc", *(EXECUTOR / name for name in CC_SOURCES)]
    objects = compile_all(folder, [*sources, *(RUNTIME / name for name in C_SOURCES)], MEMORY)
    return link(folder / "fuzz_choose", objects, *MEMORY)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return choice_fuzzer_of(tmp_path_factory.mktemp("fuzz_choose"))


def test_mutated_choices_are_judged_as_entries_and_do_no_harm(fuzzer: Path, tmp_path: Path) -> None:
    table = tmp_path / "chosen.tuccl"
    table.write_bytes(chosen_table())
    out = run(fuzzer, table, 20_000, 1)
    _, taken, rules = (int(part.split()[0]) for part in out.split(", "))
    assert 5_000 < rules <= taken < 18_000
