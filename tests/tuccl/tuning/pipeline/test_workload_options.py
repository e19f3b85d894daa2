"""Settings of a run for a workload: its keys, its timing, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tests.tuccl.tuning.pipeline.test_preparing import probe_nothing
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.errors import UsageError
from tuccl.measuring.records.record_file import write_record
from tuccl.options.run_options import RunOptions
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import ShapeName
from tuccl.tuning.pipeline import preparing
from tuccl.tuning.pipeline.dry_run import make_plan, plan_lines
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import DEFAULT_FLOOR, FLOOR_OF_WORKLOAD, make_settings
from tuccl.workloads.workload import WorkloadCall

ALL_REDUCE, ALL_GATHER, ALLTOALL = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.ALLTOALL
NODE, PAIRS = Shape(4, 1, 4), Shape(2, 1, 2)
ON_H200 = RunOptions(topology="shipped:h200-4gpu")
WITHOUT_SCHEDULES = replace(ON_H200, schedules=False)
PLAIN_IN_PLACE = replace(ON_H200, plain=True, in_place=True)


def prepared(
    folder: Path,
    *calls: WorkloadCall,
    backend: str = "simulated",
    options: RunOptions = ON_H200,
) -> Prepared:
    job = str(written(folder / "job.json", workload(*calls)))
    return preparing.prepare(replace(options, workload=job, backend=backend), probe_nothing)


def test_keys_are_those_of_the_calls_on_each_communicator(tmp_path: Path) -> None:
    found = prepared(
        tmp_path, call(ALL_GATHER, 5000, 1.0), call(ALL_REDUCE, 8, 2.0, ranks=2, nodes=None)
    )
    assert keys_of(found.settings, found.shape) == [
        Task(ALL_GATHER, 5000, NODE),
        Task(ALL_REDUCE, 8, PAIRS),
    ]
    assert [named.name for named in found.settings.shapes] == [ShapeName.WHOLE, ShapeName.PAIRS]
    alone = prepared(tmp_path, call(ALL_GATHER, 5000, 1.0))
    assert alone.settings.shapes == ()
    plan = make_plan(found.settings, found.request())
    assert plan.keys == 2
    assert plan_lines(plan)[0].startswith("keys: 2 (")


def test_an_operation_that_cannot_be_tuned_here_is_left_out_with_a_note(tmp_path: Path) -> None:
    calls = (call(ALLTOALL, 1 << 20, 1.0), call(ALL_GATHER, 1 << 20, 1.0))
    assert prepared(tmp_path, *calls).settings.operations == (ALL_GATHER, ALLTOALL)
    without = prepared(tmp_path, *calls, options=WITHOUT_SCHEDULES)
    assert without.settings.operations == (ALL_GATHER,)
    (note,) = without.notes
    assert note.startswith("not tuned: alltoall of 4 ranks on 1 node(s), 1 calls a step: alltoall")
    with pytest.raises(UsageError, match="no call of it can be tuned here; not tuned: alltoall"):
        prepared(tmp_path, calls[0], options=WITHOUT_SCHEDULES)


def test_of_many_kinds_of_calls_that_are_left_out_the_last_are_counted(tmp_path: Path) -> None:
    odd = [call(ALL_REDUCE, 1000 * ranks, 1.0, ranks=ranks) for ranks in range(5, 13)]
    *listed, rest = prepared(tmp_path, call(ALL_GATHER, 1000, 1.0), *odd).notes
    assert len(listed) == 5
    assert listed[0].startswith("not tuned: all_reduce of 12 ranks on 1 node(s)")
    assert rest == "not tuned: 3 kinds of calls more, 26.1 % of its bytes; --json lists them"


@pytest.mark.parametrize(
    ("graph", "in_place", "timed"),
    [
        (None, None, "timed in CUDA graphs, out of place"),
        (True, False, "timed in CUDA graphs, out of place"),
        (False, True, "timed one by one, outside of CUDA graphs, in place"),
    ],
)
def test_calls_are_timed_as_most_of_them_are_made(
    tmp_path: Path, graph: bool | None, in_place: bool | None, timed: str
) -> None:
    calls = [
        call(ALL_REDUCE, 4096, 3.0, graph=graph, in_place=in_place),
        call(ALL_REDUCE, 1 << 20, 2.0, graph=None if graph is None else not graph),
    ]
    found = prepared(tmp_path, *calls, backend="nccl")
    assert found.notes[-1] == f"the workload's calls are {timed}"
    assert found.settings.timing.graph == (graph is not False)
    assert found.settings.options.plain == (graph is False)
    assert found.settings.timing.in_place == bool(in_place)
    modelled = prepared(tmp_path, *calls)
    assert modelled.notes == (), "a model has no such thing"
    assert not modelled.settings.options.plain


def test_calls_that_steps_do_not_wait_for_are_noted_unless_their_channels_are_bounded(
    tmp_path: Path,
) -> None:
    hidden = replace(call(ALL_REDUCE, 4096, 3.0), us_per_call=100.0, exposed_us_per_call=10.0)
    exposed = replace(call(ALL_GATHER, 4096, 1.0), us_per_call=100.0, exposed_us_per_call=100.0)
    unknown = call(ALL_GATHER, 1 << 20, 50.0)
    # 270 of 300 us and none of 100 us are hidden.
    (note,) = prepared(tmp_path, hidden, exposed, unknown).notes
    assert note.startswith(
        "steps do not wait for 68% of the calls' time; there calls share the GPU"
    )
    assert "--max-channels N" in note
    bounded = replace(ON_H200, max_channels=16)
    assert prepared(tmp_path, hidden, exposed, options=bounded).notes == ()
    assert prepared(tmp_path, exposed, unknown).notes == ()
    assert prepared(tmp_path, unknown).notes == ()


def test_options_say_more_than_the_workload(tmp_path: Path) -> None:
    calls = call(ALL_REDUCE, 4096, 3.0, graph=True, in_place=False)
    found = prepared(tmp_path, calls, backend="nccl", options=PLAIN_IN_PLACE)
    assert (found.settings.timing.graph, found.settings.timing.in_place) == (False, True)


def test_alltoall_keeps_a_workload_out_of_place(tmp_path: Path) -> None:
    calls = (call(ALLTOALL, 1 << 20, 1.0), call(ALL_REDUCE, 1 << 20, 5.0, in_place=True))
    found = prepared(tmp_path, *calls, backend="nccl,executor")
    assert not found.settings.timing.in_place
    with pytest.raises(UsageError, match="--in-place: the workload has an operation without"):
        prepared(tmp_path, *calls, backend="nccl,executor", options=PLAIN_IN_PLACE)


def test_a_record_offers_its_sizes_alone(tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    calls = (call(ALL_REDUCE, 4000, 1.0), call(ALL_REDUCE, 1 << 20, 1.0))
    options = RunOptions(
        topology=None,
        records=str(tmp_path / "r.parquet"),
        workload=str(written(tmp_path / "job.json", workload(*calls))),
    )
    found = preparing.prepare(options, probe_nothing)
    assert keys_of(found.settings, found.shape) == [Task(ALL_REDUCE, 4096, NODE)]
    assert found.notes == (
        "not tuned: all_reduce of 1M, 1 calls a step: the record has no size within a factor of 2",
    )


def test_the_identity_follows_the_calls_and_not_the_files_name(tmp_path: Path) -> None:
    def identity(name: str, count: float) -> str:
        folder = tmp_path / name
        folder.mkdir()
        found = prepared(folder, call(ALL_GATHER, 5000, count))
        return found.settings.identity(found.topology)

    assert identity("here", 1.0) == identity("there", 1.0) != identity("again", 2.0)


def test_a_key_may_lose_more_where_the_step_counts(tmp_path: Path) -> None:
    calls = call(ALL_REDUCE, 4096, 1.0)
    assert prepared(tmp_path, calls).settings.floor == FLOOR_OF_WORKLOAD
    asked = prepared(tmp_path, calls, options=replace(ON_H200, floor="0.97"))
    assert asked.settings.floor == 0.97
    assert make_settings(ON_H200).floor == DEFAULT_FLOOR
