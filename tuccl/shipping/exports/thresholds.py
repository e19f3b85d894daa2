"""Thresholds: up to which size an engine's own all_reduce is faster than NCCL with a table.

Serving engines run small all_reduce within a host by kernels of their own, and hand larger ones to
NCCL; the border stands in their code or in a variable. It depends on both: on the time of their
kernels, which their own benchmarks tell, and on that of NCCL with the table, by the plugin alone,
since such engines call NCCL past the executor. The variable is that of vLLM 0.11 (`vllm/envs.py`).

Units: bytes are integers, times microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.quantities import format_size
from tuccl.reports.job_gains import JobGains, job_gains
from tuccl.shipping.exports.export_form import Exported, ExportForm, ExportSource
from tuccl.workloads.recordings.call_csv import CallCsvReader
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.step_calls import SizeCalls, at_size
from tuccl.workloads.workload import Workload

MARK = '{\n "format": "tuccl-thresholds"'
"""Beginning of each file."""
_VERSION = 1
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TimedSize:
    """An all_reduce of one size by both."""

    size_bytes: int
    own_us: float
    nccl_us: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """The border on communicators of one shape."""

    shape: Shape
    up_to_bytes: int
    """Largest size for which the engine's own all_reduce is worth it; 0: for none."""
    sizes: tuple[TimedSize, ...]
    """Ascending; at least one."""

    @property
    def sentence(self) -> str:
        """Return the border for people, with the times on both sides of it."""
        name = f"{self.shape.ranks} ranks"
        below = [each for each in self.sizes if each.size_bytes <= self.up_to_bytes]
        above = self.sizes[len(below) :]
        words = [f"{name}: own all_reduce for no size"]
        if below:
            words = [f"{name}: own all_reduce up to {_with_times(below[-1])}"]
        if above:
            words.append(f"NCCL with the table from {_with_times(above[0])}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The borders of all shapes for which both times are known."""

    found: tuple[Threshold, ...]
    """By ranks."""
    notes: tuple[str, ...]
    """Times that count for no border, and how an engine takes the borders."""


def thresholds(gains: JobGains, own: Workload) -> Thresholds:
    """Return the borders between an engine's own all_reduce and NCCL with a table.

    Args:
        gains: The gains of the table's run.
        own: The engine's times, as the calls of a workload; those of other operations do not count.
    """
    times_us: dict[Shape, dict[int, float]] = {}
    beside = 0
    for gain in gains.keys:
        key = gain.decision
        if key.operation is not Collective.ALL_REDUCE or key.shape.nodes > 1:
            continue
        if key.computation_us:
            beside += 1
        else:
            times_us.setdefault(key.shape, {})[key.size_bytes] = gain.without_executor.time_us
    found = []
    left_out = 0
    for shape, curve in sorted(times_us.items(), key=lambda item: item[0].ranks):
        both, beyond = _both(curve, own, shape)
        left_out += beyond
        if both:
            found.append(Threshold(shape, best_border(both), both))
    ranks = {threshold.shape.ranks for threshold in found}
    without = {
        call.ranks
        for call in own.calls
        if call.operation is Collective.ALL_REDUCE and call.ranks not in ranks
    }
    return Thresholds(tuple(found), tuple(_notes(found, left_out, beside, sorted(without))))


def best_border(sizes: Sequence[TimedSize]) -> int:
    """Return the size up to which the engine's own kernels are taken, so that most is gained.

    The sum of the logarithms of the times is least, so that one noisy time moves it little.

    Args:
        sizes: Ascending.
    """
    gained, best, border = 0.0, 0.0, 0
    for each in sizes:
        gained += log(each.nccl_us / each.own_us)
        if gained > best:
            best, border = gained, each.size_bytes
    return border


def _both(
    curve: Mapping[int, float], own: Workload, shape: Shape
) -> tuple[tuple[TimedSize, ...], int]:
    """Return the sizes that both have, and the number of those beyond the table's.

    Rows of one size, as of several data types, count by their calls.
    """
    calls: dict[int, SizeCalls] = {}
    for call in own.calls:
        alike = call.ranks == shape.ranks and call.nodes in {None, 1}
        if not alike or call.operation is not Collective.ALL_REDUCE or call.us_per_call is None:
            continue
        more = SizeCalls(call.size_bytes, call.calls_per_step, in_job_us=call.us_per_call)
        known = calls.get(call.size_bytes)
        calls[call.size_bytes] = more if known is None else known.with_more(more)
    found = [
        TimedSize(size, own_us, nccl_us)
        for size in sorted(calls)
        if (own_us := calls[size].in_job_us) is not None
        and (nccl_us := _time_at(curve, size)) is not None
    ]
    return tuple(found), len(calls) - len(found)


def _time_at(curve: Mapping[int, float], size_bytes: int) -> float | None:
    """Return a time between those of tuned sizes, on logarithmic scales; None beyond them."""
    sizes = sorted(curve)
    if not sizes[0] <= size_bytes <= sizes[-1]:
        return None
    if size_bytes in curve:
        return curve[size_bytes]
    return exp(at_size(log(size_bytes), [(log(size), log(curve[size])) for size in sizes]))


def _notes(
    found: Sequence[Threshold], left_out: int, beside: int, without: Sequence[int]
) -> Iterable[str]:
    if beside:
        yield (
            f"{beside} sizes of the table were timed beside computation, which the engine's times "
            "are not, and do not count: tune with --alone"
        )
    if left_out:
        yield f"{left_out} sizes are smaller or larger than all that were tuned, and do not count"
    for ranks in without:
        yield f"the table has no all_reduce of {ranks} ranks on one node"
    if found:
        borders = {str(each.shape.ranks): each.up_to_bytes / _MIB for each in found}
        yield (
            "vLLM 0.11 takes those of FlashInfer's all_reduce, in MiB, as "
            f"VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB='{json.dumps(borders)}'"
        )
        yield (
            "NCCL's times are those of the plugin: the executor's schedules do not run in engines "
            "that look NCCL's functions up by dlopen"
        )


def _with_times(each: TimedSize) -> str:
    return f"{format_size(each.size_bytes)} ({each.own_us:.1f} us against {each.nccl_us:.1f})"


def thresholds_text(found: Thresholds, machine: str, fingerprint: str) -> str:
    """Return the file's text.

    Args:
        found: The borders.
        machine: Name of the tuned machine.
        fingerprint: Fingerprint of its topology.
    """
    content = {
        "format": "tuccl-thresholds",
        "version": _VERSION,
        "machine": machine,
        "fingerprint": fingerprint,
        "operation": Collective.ALL_REDUCE.value,
        "thresholds": [
            {
                "ranks": each.shape.ranks,
                "nodes": each.shape.nodes,
                "up_to_bytes": each.up_to_bytes,
                "sizes": [
                    {name: round(value, 3) for name, value in asdict(size).items()}
                    for size in each.sizes
                ],
            }
            for each in found.found
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def _export(source: ExportSource, _target: Path) -> Exported:
    """Return the file of a table and an engine's own times.

    Raises:
        UsageError: The table or the times have nothing to compare.
        InputFileError: The engine's times cannot be read.
    """
    if source.report is None or source.own_times is None:
        raise UsageError(
            f"{source.name}: a shipped directory lacks the times of calls that are left to NCCL; "
            "name the workspace that it was shipped from"
        )
    reader = CallCsvReader()
    with RecordingFile(source.own_times) as file:
        reader.read(file)
    own = reader.workload((str(source.own_times),), None)
    borders = thresholds(job_gains(source.table, source.report, has_executor=False), own)
    if not borders.found:
        reasons = "; ".join(borders.notes) or "it has no times (us_per_call) of all_reduce"
        raise UsageError(f"{source.own_times}: nothing to compare with the table: {reasons}")
    text = thresholds_text(borders, source.table.topology_name, source.table.fingerprint)
    said = tuple(each.sentence for each in borders.found)
    return Exported(text, len(borders.found), said, borders.notes)


FORM = ExportForm("all_reduce_thresholds.json", MARK, _export, needs_own_times=True)
