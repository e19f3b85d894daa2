"""Settings from the options of the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.table import Operation, Shape
from tuccl.errors import UsageError
from tuccl.options.run_options import RunOptions
from tuccl.tuning.settings import (
    RunSettings,
    make_settings,
    require_executor_for_alltoall,
)


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
        assert settings_for(name, backend).operations == (Operation.ALLTOALL,)


def test_without_schedules_alltoall_is_refused_with_the_reason() -> None:
    for backend in ("nccl", "replay", "sockets"):
        with pytest.raises(UsageError, match=f"asks no tuner: --backend {backend} runs none, use"):
            settings_for("all_reduce,alltoall", backend)
    with pytest.raises(UsageError, match="`tuccl tune` searches none, use `tuccl init`"):
        settings_for("alltoall", "nccl,executor", schedules=False)


def test_alltoall_is_refused_where_the_executor_does_not_serve() -> None:
    settings = settings_for("alltoall", "simulated")
    require_executor_for_alltoall(settings, Shape(8, 1, 8))
    for shape in (Shape(16, 1, 16), Shape(2, 2, 1), Shape(32, 2, 16)):
        with pytest.raises(UsageError, match=f"has {shape.ranks} on {shape.nodes}; leave it"):
            require_executor_for_alltoall(settings, shape)
        require_executor_for_alltoall(settings_for("all_reduce", "simulated"), shape)


def test_alltoall_across_hosts_is_measured_on_the_executor() -> None:
    for shape in (Shape(4, 2, 2), Shape(3, 2, 0)):
        require_executor_for_alltoall(settings_for("alltoall", "nccl,executor"), shape)
        with pytest.raises(UsageError, match="use --backend nccl,executor there"):
            require_executor_for_alltoall(settings_for("alltoall", "simulated"), shape)


def test_alltoall_is_refused_where_nccl_has_no_such_function() -> None:
    settings = settings_for("alltoall", "nccl,executor")
    require_executor_for_alltoall(replace(settings, nccl="2.28.3"), Shape(4, 1, 4))
    with pytest.raises(UsageError, match=r"NCCL 2\.27\.7 has no ncclAlltoAll"):
        require_executor_for_alltoall(replace(settings, nccl="2.27.7"), Shape(4, 1, 4))


def test_in_place_alltoall_is_refused() -> None:
    with pytest.raises(UsageError, match="alltoall has no such form"):
        settings_for("alltoall,all_reduce", "nccl,executor", in_place=True)
    assert settings_for("all_reduce", "nccl,executor", in_place=True).timing.in_place
