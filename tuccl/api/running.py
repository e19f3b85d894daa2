"""A run of `init`, `tune` and `retune` in its leading process: NCCL, the machine, the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from lookup_tables.parquet_form import require_pyarrow
from probes.topology.graph import Topology
from synthesizer.solve.solver import require_solver
from tuccl.api.hosts.settled_nccl import settle_nccl
from tuccl.crew.places import Places
from tuccl.errors import HostError, UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.options.run_options import RunOptions
from tuccl.runtime import plugin_path
from tuccl.schedules.own_schedules import schedule_files
from tuccl.tuning.pipeline.options_to_settings import settings_of_options
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.workload_options import workload_of_options


def lead_run(
    given: RunOptions,
    places: Places | None,
    probe: Callable[[], Topology],
    lead: Callable[[Callable[[], Topology], Places | None], int],
    first: Callable[[], None],
    note: Callable[[Iterable[str]], None],
    *,
    needs_nccl: bool = True,
) -> int:
    """Run `lead` after the first checks; return the exit code.

    Args:
        given: The options of the run.
        places: The ranks of a job, if there are several.
        probe: Probes the machine if neither a file nor a record describes it.
        lead: Called with that probe, and with the places of workers; None for those of this host.
        first: Checks, before anything is probed, whether the run can finish.
        note: Called with notes on the NCCL that is used.
        needs_nccl: Whether probing is useless if a backend that measures NCCL finds none.

    Raises:
        UsageError: The options are for a single process.
        SeveralNcclsError: It is not clear which NCCL is to be measured.
    """
    if given.share_gpus and places is not None:
        raise UsageError(
            f"--share-gpus within {len(places.places)} tasks of a launcher: each has a GPU of its "
            "own; start it once"
        )
    kind = backend_kind(given.backend_name)
    first()
    if kind.measures_nccl:
        # Without a probe, impossible options are named before a host that cannot measure.
        settle_nccl(places, note, required=needs_nccl and not given.has_machine)
    return lead(cache(probe), places if kind.has_workers else None)


def look_first(
    given: RunOptions,
    record_to: RecordOutput | None,
    note: Callable[[Iterable[str]], None],
) -> None:
    """Check whether the run that these options describe can finish.

    Nothing is made or written. The workspace is checked later, where something is about to be
    written there: a finished run only reads it.

    Args:
        given: The options of the run.
        record_to: File of the run's record; None: no record.
        note: Called with a note on what `tuccl ship` will not find.

    Raises:
        TucclError: An option, or the file of the record, cannot be used.
        HostError: The installed pyarrow cannot write tables.
        ScheduleError: There is no solver for schedules.
    """
    kind = backend_kind(given.backend_name)
    if record_to is not None:
        record_to.check(given)
    workload_of_options(given)
    if given.records is None:
        settings_of_options(given, None)
    require_pyarrow()
    if given.own_schedules is not None:
        schedule_files(Path(given.own_schedules))
    if given.schedules and kind.runs_schedules:
        require_solver()
    try:
        plugin_path()
    except HostError as error:
        note([f"`tuccl ship` will not find what it needs: {error}"])
