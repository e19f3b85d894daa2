"""Checks, before anything is probed, of all that the end of a run needs.

A run takes minutes of GPUs. An obstacle to writing its result must stop it within its first second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lookup_tables.parquet_form import require_pyarrow
from synthesizer.solve.solver import require_solver
from tuccl.errors import HostError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.options.run_options import RunOptions
from tuccl.runtime import plugin_path
from tuccl.schedules.own_schedules import schedule_files
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.run_options import settings_of_options
from tuccl.tuning.pipeline.workload_options import workload_of_options


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
