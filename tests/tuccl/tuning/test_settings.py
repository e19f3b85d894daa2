"""Settings from the options of the command line."""

from __future__ import annotations

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.options.run_options import RunOptions
from tuccl.tuning.settings import RunSettings, make_settings, refusal_of


def settings_for(
    operations: str, backend: str, *, schedules: bool = True, in_place: bool = False
) -> RunSettings:
    given = RunOptions(
        operations=operations,
        max_size="4K",
        backend=backend,
        schedules=schedules,
        in_place=in_place,
    )
    return make_settings(given)


@pytest.mark.parametrize("name", ["alltoall", "AllToAll", "all_to_all"])
def test_alltoall_is_tuned_where_a_schedule_can_replace_sends(name: str) -> None:
    for backend in ("nccl,executor", "executor", "simulated"):
        assert settings_for(name, backend).operations == (Collective.ALLTOALL,)


def test_without_schedules_alltoall_is_refused_with_the_reason() -> None:
    for backend in ("nccl", "replay", "sockets"):
        with pytest.raises(UsageError, match=f"asks no tuner: --backend {backend} runs none, use"):
            settings_for("all_reduce,alltoall", backend)
    with pytest.raises(UsageError, match="`tuccl tune` searches none, use `tuccl init`"):
        settings_for("alltoall", "nccl,executor", schedules=False)


@pytest.mark.parametrize(
    ("backend", "shape", "nccl", "why"),
    [
        ("simulated", Shape(8, 1, 8), "", None),
        ("simulated", Shape(16, 1, 16), "", None),
        ("simulated", Shape(33, 1, 33), "", "has 33 on 1; leave it"),
        ("simulated", Shape(2, 2, 1), "", "has 2 on 2; leave it"),
        ("simulated", Shape(66, 2, 33), "", "has 66 on 2; leave it"),
        ("nccl,executor", Shape(4, 2, 2), "", None),
        ("nccl,executor", Shape(3, 2, 0), "", None),
        ("simulated", Shape(4, 2, 2), "", "use --backend nccl,executor there"),
        ("nccl,executor", Shape(4, 1, 4), "2.28.3", None),
        ("nccl,executor", Shape(4, 1, 4), "2.27.7", "NCCL 2.27.7 has no ncclAlltoAll"),
    ],
)
def test_alltoall_is_refused_where_the_executor_or_nccl_has_none(
    backend: str, shape: Shape, nccl: str, why: str | None
) -> None:
    refusal = refusal_of(Collective.ALLTOALL, RunOptions(backend=backend), shape, nccl)
    assert refusal is None if why is None else why in str(refusal)


def test_in_place_alltoall_is_refused() -> None:
    with pytest.raises(UsageError, match="alltoall has no such form"):
        settings_for("alltoall,all_reduce", "nccl,executor", in_place=True)
    assert settings_for("all_reduce", "nccl,executor", in_place=True).timing.in_place


def test_a_record_has_no_sums_to_check() -> None:
    options = RunOptions(backend="replay", records="run.parquet", invariant=True)
    with pytest.raises(UsageError, match="--invariant demands that sums are checked"):
        make_settings(options, offers_schedules=True)
