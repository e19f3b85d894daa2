"""The form in which a schedule is written to a file, and what runtimes make of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probes.topology import Topology
from synthesizer.algorithm import Algorithm
from synthesizer.exports import EXPORTS, export, format_of_path
from synthesizer.msccl_limits import check_limits
from synthesizer.nccl_graph_figures import GraphMachine
from tuccl.errors import UsageError
from tuccl.sketch_attempt import Tried

STDOUT = Path("-")
_OF_MSCCL = ("msccl", "msccl-microsoft")


def wanted_format(name: str | None, output: Path | None) -> str | None:
    """The format by its name, else by the file's; None where nothing is to be written.

    Raises:
        UsageError: There is no such format.
        ExportError: The file's name tells none.
    """
    if name is not None:
        if name not in EXPORTS:
            raise UsageError(f"format {name!a:.60} is unknown: use one of {', '.join(EXPORTS)}")
        return name
    if output is None:
        return None
    return next(iter(EXPORTS)) if output == STDOUT else format_of_path(str(output))


def schedule_text(tried: Tried, topology: Topology, name: str) -> str:
    """A schedule in a format.

    Raises:
        ExportError: The format has no words for it.
        DefectError: It is wrong.
    """
    return export(tried.algorithm, name, GraphMachine(topology, tried.sketch))


def runtime_notes(algorithm: Algorithm, size_bytes: int, name: str | None) -> Iterator[str]:
    """Why an MSCCL runtime would leave the call to NCCL, one sentence each."""
    if name not in {None, *_OF_MSCCL}:
        return
    if size_bytes % algorithm.chunks_per_loop:
        yield (
            f"an MSCCL runtime takes no size that {algorithm.chunks_per_loop} chunks do not "
            f"divide, so not this one"
        )
    for limit in check_limits(algorithm):
        yield f"an MSCCL runtime would not run it: {limit}"
