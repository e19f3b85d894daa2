"""Checks, before anything is probed, of all that the end of a run needs and its start can tell.

A run takes minutes of GPUs. Whatever would keep its result from being written is to stop it within
its first second instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lookup_tables.parquet_form import require_pyarrow
from synthesizer.solve.solver import require_solver
from tuccl.backends.backend_choice import backend_kind
from tuccl.console import display
from tuccl.inputs.run_options import RunOptions
from tuccl.pipeline.record_output import RecordOutput
from tuccl.pipeline.run_options import settings_of_options
from tuccl.runtime import PluginMissingError, plugin_path
from tuccl.schedules.own_schedules import schedule_files


def look_first(
    given: RunOptions,
    record_to: RecordOutput | None = None,
    note: Callable[[Iterable[str]], None] = display.say_notes,
) -> None:
    """Look whether the run that these options ask for can come to its end.

    Nothing is made or written. The workspace is looked at where something is about to be written
    there: a run that is finished only reads it.

    Args:
        given: The options of the run.
        record_to: Where the run's record goes, if one is wanted.
        note: Told what `tuccl ship` will not find.

    Raises:
        TucclError: An option, or the file of the record, cannot be meant.
        PyarrowError: The installed pyarrow cannot write tables.
        SolverError: There is no solver for schedules.
    """
    kind = backend_kind(given.backend_name)
    if record_to is not None:
        record_to.check(given)
    if given.records is None:
        settings_of_options(given, None)
    require_pyarrow()
    if given.own_schedules is not None:
        schedule_files(Path(given.own_schedules))
    if given.schedules and kind.runs_schedules:
        require_solver()
    try:
        plugin_path()
    except PluginMissingError as error:
        note([f"`tuccl ship` will not find what it needs: {error}"])
