"""A finished run on standard output, as a table or as JSON."""

from __future__ import annotations

from tuccl.console.json_output import print_document
from tuccl.console.table_display import print_table
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import gains_of


def print_result(result: FinishedRun, as_json: bool) -> None:
    """Print the result of `init`, `tune` and `table`."""
    gains = gains_of(result)
    if as_json:
        from tuccl.console.table_document import table_document  # noqa: PLC0415 - for JSON

        print_document(table_document(result, gains))
    else:
        print_table(result.table, result.report, gains)
