"""What a job learned, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuccl.quantities import format_size
from tuccl.views.terminal.tables import print_rows

if TYPE_CHECKING:
    from lookup_tables.table import Shape
    from tuccl.reports.learned import Learned, LearnedKey
    from tuccl.tuning.pipeline.learned_run import LearnedImport


def print_learned(learned: Learned) -> None:
    """Print a row for each operation and size."""
    print_rows(
        f"learned by {learned.written_at}, times in us, medians in the job",
        ("operation", "ranks", ">size", ">calls", "~runs", ">time", ">NCCL", ">gain"),
        map(_cells, learned.keys),
        group=2,
    )


def _cells(key: LearnedKey) -> tuple[str, ...]:
    return (
        key.operation.value,
        _ranks(key.shape),
        format_size(key.size_bytes),
        str(key.calls),
        key.chosen.text if key.races else f"{key.chosen.text} (no race has ended)",
        _time(key.chosen.time_us),
        _time(key.nccl_us),
        "-" if key.gain is None else f"{key.gain:.3f}x",
    )


def print_imported(done: LearnedImport) -> None:
    """Print a row for each size whose choice is another one now."""
    if not done.entries:
        return
    print_rows(
        f"learned in the job {done.job}, times in us",
        ("operation", "ranks", ">size", "~runs", ">time", ">NCCL"),
        (
            (
                each.operation.value,
                _ranks(each.shape),
                format_size(each.size_bytes),
                each.runs,
                _time(each.time_us),
                _time(each.nccl_us),
            )
            for each in done.entries
        ),
        group=2,
    )


def _ranks(shape: Shape) -> str:
    return f"{shape.ranks}" if shape.nodes == 1 else f"{shape.ranks} on {shape.nodes} nodes"


def _time(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.4g}"
