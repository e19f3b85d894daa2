"""A finished run on standard output, as a table or as JSON; and what a retune did."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import gains_of
from tuccl.reports.report import Report, RetunedReport
from tuccl.search.trials.shapes import shape_text
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.json_output import print_document
from tuccl.views.terminal.table_display import print_table
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size


def print_result(result: FinishedRun, as_json: bool) -> None:
    """Print the result of `init`, `tune` and `table`."""
    gains = gains_of(result)
    if as_json:
        from tuccl.views.terminal.table_document import table_document  # noqa: PLC0415 - for JSON

        print_document(table_document(result, gains))
    else:
        print_table(result.table, result.report, gains)


def print_retuned(report: Report) -> None:
    """Print what a job gains or loses by the new table against the one before."""
    if report.retuned is not None:
        print_lines(map(report.readable, _retuned_lines(report.retuned)))


def _retuned_lines(retuned: RetunedReport) -> Iterator[str]:
    total = count_of(retuned.kept + retuned.measured, "key")
    which = f"{retuned.kept} kept, {retuned.measured} measured"
    if retuned.gain is None:
        yield f"against the old table: not measured, the budget was spent ({total}: {which})"
    else:
        yield (
            f"against the old table, on this machine now: {retuned.gain:.3f}x, geometric mean over "
            f"{total} ({which})"
        )
    if retuned.keys:
        worst = min(retuned.keys, key=lambda key: key.ratio)
        best = max(retuned.keys, key=lambda key: key.ratio)
        for name, key in (("least", worst), ("most", best)):
            how = "as before" if key.now == key.before else f"instead of {key.before}"
            yield (
                f"{name} at {key.operation} {format_size(key.size_bytes)}, "
                f"{shape_text(key.shape)}: {key.ratio:.3f}x, {key.now} {how}"
            )
    before = ""
    if retuned.samples_before is not None:
        before = f", the run before took {retuned.samples_before}"
    yield f"{count_of(retuned.samples, 'sample')} were taken{before}"
