"""Shipped directories and workspaces as a bench finds them, and an environment without a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import JobGain
from lookup_tables.table import NcclProtocol, ScheduleConfig, Shape, StoredSchedule
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.phase_plans import plan_by_name
from tests.tuccl.conftest import TunedWorkspace
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.bench.shipped_tables import (
    TWO_RANKS,
    M,
    all_gather_entry,
    placed_pairs,
    ship_entries,
)
from tuccl.errors import UsageError
from tuccl.reports.keys import Gain
from tuccl.reports.report import read_report
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.shipping.bench.contenders import ShippedTable, read_shipped_table
from tuccl.shipping.bench.placed_calls import untimed_note
from tuccl.shipping.bench.places import (
    found_tables,
    keys_of,
    require_entries,
)
from tuccl.shipping.bench.surroundings import without_table
from tuccl.shipping.shipment import ship
from tuccl.workspace.runs import Workspace

THREE_RANKS = Shape(3, 1, 3)


def promised(table: ShippedTable, task: Task) -> float | None:
    stated = table.stated(task)
    return None if stated is None else stated.gain.ratio


@pytest.fixture
def directory(stand_ins: StandIns, tmp_path: Path) -> Path:
    """A table with a process profile and the executor, moved after it was shipped."""
    made = ship_entries(
        tmp_path / "made",
        stand_ins,
        all_gather_entry(8),
        all_gather_entry(8, size_bytes=8 * M),
        profile={"NCCL_MIN_CTAS": "32"},
        executor=True,
    )
    return made.rename(tmp_path / "moved")


def test_a_job_has_the_variables_of_tuccl_env_wherever_it_lies(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    table = read_shipped_table(directory, "moved")
    (bundle,) = directory.glob("bundle-*.tuccl")
    assert table.variables == {
        "NCCL_TUNER_PLUGIN": str(directory / "libnccl-tuner-tuccl.so"),
        "NCCL_MIN_CTAS": "32",
        "TUCCL_BUNDLE": str(bundle),
        "TUCCL_BUNDLE_CRC": f"{table.bundle.crc:08x}",
        "TUCCL_ENV": str(directory / f"tuccl-{table.bundle.crc:08x}.env"),
        "TUCCL_NCCL": "",
        "LD_PRELOAD": str(directory / "libtuccl-executor.so"),
    }
    assert table.has_executor
    assert promised(table, Task(Collective.ALL_GATHER, 2 * M, TWO_RANKS)) == pytest.approx(1.5)


def test_across_hosts_a_table_promises_the_schedules_of_phases(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """An executor runs no other schedules there, whatever the table says."""
    two_nodes = Shape(4, 2, 2)
    plan = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)
    kernel = ScheduleConfig("5a5a", NcclProtocol.LL, 8, 512, M)
    entry = replace(all_gather_entry(8, shape=two_nodes), schedule=kernel, time_us=16.0)
    task = Task(Collective.ALL_GATHER, 2 * M, two_nodes)
    for program, gain in ((compile_program(plan), 4.0), (b"", 1.5)):
        stored = StoredSchedule("5a5a", "all_gather_rails_first", "<algo/>", program)
        folder = tmp_path / str(len(program))
        ship_entries(folder, stand_ins, entry, executor=True, schedules=(stored,))
        table = read_shipped_table(folder, "across")
        assert promised(table, task) == pytest.approx(gain)
    alone = read_shipped_table(folder, "alone", with_executor=False)
    assert promised(alone, task) == pytest.approx(1.5)


def test_what_jobs_with_the_whole_table_gained_is_the_promise(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """Decisions time a key in workers without the rest of the table."""
    entry = replace(all_gather_entry(8), in_job=JobGain(60.0, 48.0, 1.2, 1.3, 2))
    ship_entries(tmp_path / "s", stand_ins, entry)
    table = read_shipped_table(tmp_path / "s", "held")
    stated = table.stated(Task(Collective.ALL_GATHER, 2 * M, TWO_RANKS))
    assert stated is not None
    assert (stated.stock_us, stated.table_us) == (60.0, 48.0)
    assert stated.gain == Gain(1.25, 1.2, 1.3)


def test_without_the_executor_a_jobs_own_libraries_stay(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/mine.so")
    table = read_shipped_table(directory, "moved")
    assert table.variables["LD_PRELOAD"] == f"{directory / 'libtuccl-executor.so'} /lib/mine.so"
    alone = read_shipped_table(directory, "moved", with_executor=False)
    assert alone.variables["LD_PRELOAD"] == "/lib/mine.so"
    assert not alone.has_executor


@pytest.mark.parametrize(
    "missing", ["tuccl.env", "libnccl-tuner-tuccl.so", "libtuccl-executor.so", "bundle-*.tuccl"]
)
def test_a_missing_file_is_named_in_one_line(directory: Path, missing: str) -> None:
    (path,) = directory.glob(missing)
    path.unlink()
    with pytest.raises(UsageError) as error:
        read_shipped_table(directory, "moved")
    assert str(path) in str(error.value)
    assert "is missing" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["exit 3\n", "export NCCL_TUNER_PLUGIN=none\n", "if\n"])
def test_a_tuccl_env_of_somebody_else_is_named(directory: Path, text: str) -> None:
    (directory / "tuccl.env").write_text(text)
    with pytest.raises(UsageError, match=r"tuccl\.env"):
        read_shipped_table(directory, "moved")


def test_keys_are_the_tables_or_those_that_are_named(directory: Path) -> None:
    with found_tables([directory], with_executor=True) as (found,):
        own = keys_of(found, TWO_RANKS, None, None)
        assert [(task.operation, task.size_bytes) for task in own] == [
            (Collective.ALL_GATHER, 2 * M), (Collective.ALL_GATHER, 8 * M),
        ]  # fmt: skip
        both = (Collective.ALL_GATHER, Collective.ALL_REDUCE)
        assert len(keys_of(found, TWO_RANKS, both, None)) == 4, "sizes of the other operation"
        named = keys_of(found, TWO_RANKS, None, (1024,))
        assert [(task.operation, task.size_bytes) for task in named] == [("all_gather", 1024)]
        with pytest.raises(UsageError, match="name --operations and --sizes"):
            keys_of(found, THREE_RANKS, None, None)


def test_communicators_with_entries_of_their_own_are_keys_where_they_are(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    four = Shape(4, 1, 4)
    placements = placed_pairs((4,), (8,))
    placed = ship_entries(
        tmp_path / "placed", stand_ins, all_gather_entry(2, 1.25, 8 * M), placements=placements
    )
    with found_tables([placed], with_executor=True) as (found,):
        table = found.shipped
        keys = keys_of(found, four, None, None)
        assert [(task.placement, task.size_bytes) for task in keys] == [
            (Placement(stride, (0, 1)), size) for stride in (1, 2) for size in (2 * M, 8 * M)
        ]
        stated = [promised(table, task) for task in keys]
        # At 8M both run the entry of any pair, which was timed on all neighbours.
        assert stated == [pytest.approx(1.5), pytest.approx(1.25), pytest.approx(2.5), None]
        neighbours = Task(Collective.ALL_GATHER, 2 * M, TWO_RANKS)
        assert table.entry(neighbours) == table.entry(keys[0])
        assert promised(table, neighbours) == pytest.approx(1.5)
        assert untimed_note(table.table, four) == ""
        eight = Shape(8, 2, 4)
        assert {task.placement for task in keys_of(found, eight, None, None)} == {ANYWHERE}
        assert "with 4 ranks on 1 node(s), here run 8" in untimed_note(table.table, eight)


def test_a_call_that_some_placement_may_run_otherwise_is_promised_nothing(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    placements = placed_pairs((4,), (8,))
    half = [
        replace(own, timed=replace(own.timed, siblings=(0,))) for own in placements if own.timed
    ]
    for number, own in enumerate((half, [replace(own, timed=None) for own in placements])):
        folder = ship_entries(
            tmp_path / str(number), stand_ins, all_gather_entry(2), placements=own
        )
        table = read_shipped_table(folder, "placed")
        assert table.stated(Task(Collective.ALL_GATHER, 2 * M, TWO_RANKS)) is None
    assert "does not say on which GPUs" in untimed_note(table.table, Shape(4, 1, 4))


def test_a_table_for_other_ranks_is_refused_with_those_that_it_is_for(directory: Path) -> None:
    table = read_shipped_table(directory, "moved")
    require_entries(table, TWO_RANKS)
    with pytest.raises(UsageError) as error:
        require_entries(table, THREE_RANKS)
    assert "no entries for 3 ranks on 1 node(s), which is what runs here" in str(error.value)
    assert "but for 2 ranks on 1 node(s)" in str(error.value)


def test_the_keys_of_a_run_are_all_tuned_ones_shipped_or_not(
    tuned: TunedWorkspace, tmp_path: Path
) -> None:
    """What NCCL decides is timed, too: the table's presence may slow it down."""
    run, shipped = Workspace(tuned.root).current(), tmp_path / "shipped"
    ship(run, shipped)
    tasks = [Task(key.operation, key.size_bytes, key.shape) for key in read_report(run).keys]
    with found_tables([tuned.root, shipped], with_executor=True) as tables:
        assert [table.shipped.name for table in tables] == [str(tuned.root), str(shipped)]
        for table in tables:
            assert sorted(keys_of(table, Shape(4, 1, 4), None, None)) == sorted(tasks)
            assert any("computed by a model" in note.lower() for note in table.notes)
        folder = tables[0].shipped.directory
        assert folder.is_dir()
    assert not folder.exists()


def test_one_place_is_no_comparison(directory: Path) -> None:
    twice = [directory, directory / ".." / "moved"]
    with pytest.raises(UsageError, match="named twice"), found_tables(twice, with_executor=True):
        pass


def test_a_shell_that_sourced_a_tuccl_env_measures_stock_without_it() -> None:
    environment = {
        "PATH": "/bin",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_MIN_CTAS": "32",
        "NCCL_NTHREADS": "256",
        "NCCL_TUNER_PLUGIN": "/shared/libnccl-tuner-tuccl.so",
        "TUCCL_PROFILE": "NCCL_MIN_CTAS",
        "TUCCL_BUNDLE": "/shared/bundle-12345678.tuccl",
        "TUCCL_BUNDLE_CRC": "12345678",
        "TUCCL_NCCL_LIBRARY": "/opt/libnccl.so.2",
        "LD_PRELOAD": "/shared/libtuccl-executor.so:/lib/mine.so",
    }
    assert without_table(environment) == {
        "PATH": "/bin",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_NTHREADS": "256",
        "TUCCL_NCCL_LIBRARY": "/opt/libnccl.so.2",
        "LD_PRELOAD": "/lib/mine.so",
    }
    own = {"NCCL_TUNER_PLUGIN": "/opt/other-tuner.so"}
    assert without_table(own) == {"NCCL_TUNER_PLUGIN": "/opt/other-tuner.so"}, "the user's own"
