"""Export formats of schedules, by name.

`export_files` takes a format's name, a schedule, and, for formats that name devices, the machine
that the schedule was made for. Where nodes need different files, it returns one per node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from synthesizer.formats.msccl_xml import Dialect, write_msccl_xml
from synthesizer.formats.mscclpp_plan import write_mscclpp_plan
from synthesizer.formats.nccl_graph_figures import GraphMachine
from synthesizer.formats.nccl_graph_xml import nccl_graph_files
from synthesizer.ir.algorithm import Algorithm
from tuccl.errors import FormatError

_Writer = Callable[[Algorithm, GraphMachine | None], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Export:
    """An export format."""

    name: str
    suffix: str
    """Suffix of its files, with the dot."""
    reader: str
    """The runtime that reads it."""
    crosses_nodes: bool
    """Whether it can express messages between nodes."""
    write: _Writer
    """Return the texts of a schedule, one for all nodes or one per node."""


def _msccl(algorithm: Algorithm, _: GraphMachine | None) -> tuple[str, ...]:
    return (write_msccl_xml(algorithm, Dialect.AZURE),)


def _microsoft(algorithm: Algorithm, _: GraphMachine | None) -> tuple[str, ...]:
    return (write_msccl_xml(algorithm, Dialect.MICROSOFT),)


def _mscclpp(algorithm: Algorithm, machine: GraphMachine | None) -> tuple[str, ...]:
    nodes = machine.node_of_rank if machine else None
    return (write_mscclpp_plan(algorithm, node_of_rank=nodes),)


def _nccl_graph(algorithm: Algorithm, machine: GraphMachine | None) -> tuple[str, ...]:
    if machine is None:
        raise FormatError(
            f"{algorithm.name}: an NCCL graph names devices; give the schedule's topology"
        )
    return nccl_graph_files(algorithm, machine)


_ALL = (
    Export("msccl", ".xml", "Azure/msccl-executor-nccl", True, _msccl),
    Export("msccl-microsoft", ".xml", "microsoft/msccl", True, _microsoft),
    Export("mscclpp", ".json", "MSCCL++ executor", False, _mscclpp),
    Export("nccl-graph", ".graph.xml", "NCCL_GRAPH_FILE of NCCL", True, _nccl_graph),
)

EXPORTS: Mapping[str, Export] = MappingProxyType({entry.name: entry for entry in _ALL})
"""Formats by name, the default first."""


def export_files(
    algorithm: Algorithm, format_name: str, machine: GraphMachine | None = None
) -> tuple[str, ...]:
    """Write a schedule in a format: one text if it serves all nodes, else one per node.

    Args:
        algorithm: A proved schedule.
        format_name: A key of `EXPORTS`.
        machine: The machine that it was made for; some formats need it.

    Raises:
        ScheduleError: The schedule is wrong.
        FormatError: The format does not exist, or cannot express the schedule.
    """
    if format_name not in EXPORTS:
        raise FormatError(f"no format '{format_name}'; there are {', '.join(EXPORTS)}")
    return EXPORTS[format_name].write(algorithm, machine)


def format_of_path(path: str) -> str:
    """Return the format of a file's name: the first with the longest matching suffix.

    Raises:
        FormatError: No format has such a suffix.
    """
    fitting = [entry for entry in _ALL if path.endswith(entry.suffix)]
    if not fitting:
        suffixes = ", ".join(sorted({entry.suffix for entry in _ALL}))
        raise FormatError(f"{path}: no format for this name; give a format or end it in {suffixes}")
    return max(fitting, key=lambda entry: len(entry.suffix)).name
