"""Formats in which a schedule leaves TuCCL, by name.

`export` and `export_files` are what a command needs: a format's name, a schedule, and for formats
that speak of devices the machine it was made for. Where a format cannot say in one file what all
nodes do, `export_files` gives one for each node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from synthesizer.errors import ExportError
from synthesizer.formats.msccl_xml import Dialect, write_msccl_xml
from synthesizer.formats.mscclpp_plan import write_mscclpp_plan
from synthesizer.formats.nccl_graph_figures import GraphMachine
from synthesizer.formats.nccl_graph_xml import nccl_graph_files
from synthesizer.ir.algorithm import Algorithm

_Writer = Callable[[Algorithm, GraphMachine | None], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Export:
    """A format."""

    name: str
    suffix: str
    """Of its files, with the dot."""
    reader: str
    """What reads it."""
    needs_machine: bool
    crosses_nodes: bool
    """Whether it has words for a message from node to node."""
    write: _Writer
    """Texts of a schedule, one for all nodes or one for each; raises what `export` raises."""


def _msccl(algorithm: Algorithm, _: GraphMachine | None) -> tuple[str, ...]:
    return (write_msccl_xml(algorithm, Dialect.AZURE),)


def _microsoft(algorithm: Algorithm, _: GraphMachine | None) -> tuple[str, ...]:
    return (write_msccl_xml(algorithm, Dialect.MICROSOFT),)


def _mscclpp(algorithm: Algorithm, machine: GraphMachine | None) -> tuple[str, ...]:
    nodes = machine.node_of_rank if machine else None
    return (write_mscclpp_plan(algorithm, node_of_rank=nodes),)


def _nccl_graph(algorithm: Algorithm, machine: GraphMachine | None) -> tuple[str, ...]:
    if machine is None:
        raise ExportError(
            f"{algorithm.name}: an NCCL graph names devices: give the topology it was made for"
        )
    return nccl_graph_files(algorithm, machine)


_ALL = (
    Export("msccl", ".xml", "Azure/msccl-executor-nccl", False, True, _msccl),
    Export("msccl-microsoft", ".xml", "microsoft/msccl", False, True, _microsoft),
    Export("mscclpp", ".json", "MSCCL++ executor", False, False, _mscclpp),
    Export("nccl-graph", ".graph.xml", "NCCL_GRAPH_FILE of NCCL", True, True, _nccl_graph),
)

EXPORTS: Mapping[str, Export] = MappingProxyType({one.name: one for one in _ALL})
"""Formats by name, the default first."""


def export(algorithm: Algorithm, format_name: str, machine: GraphMachine | None = None) -> str:
    """Write a schedule in a format, as one file for all nodes.

    Args:
        algorithm: A proved schedule.
        format_name: A key of `EXPORTS`.
        machine: The machine it was made for; only formats that need it say so when it is missing.

    Raises:
        DefectError: The schedule is wrong.
        ExportError: No such format, or the schedule cannot be expressed in it, or not in one file.
    """
    texts = export_files(algorithm, format_name, machine)
    if len(texts) > 1:
        raise ExportError(
            f"{algorithm.name}: in format {format_name} its {len(texts)} nodes need a file each"
        )
    return texts[0]


def export_files(
    algorithm: Algorithm, format_name: str, machine: GraphMachine | None = None
) -> tuple[str, ...]:
    """Write a schedule in a format: one text where it serves all nodes, else one for each node.

    Arguments and errors are those of `export`.
    """
    if format_name not in EXPORTS:
        raise ExportError(f"no format '{format_name}'; there are {', '.join(EXPORTS)}")
    return EXPORTS[format_name].write(algorithm, machine)


def format_of_path(path: str) -> str:
    """The format that a file's name asks for: the first of the longest suffix that fits.

    Raises:
        ExportError: No format has such a suffix.
    """
    fitting = [one for one in _ALL if path.endswith(one.suffix)]
    if not fitting:
        suffixes = ", ".join(sorted({one.suffix for one in _ALL}))
        raise ExportError(f"{path}: no format for this name; give a format or end it in {suffixes}")
    return max(fitting, key=lambda one: len(one.suffix)).name
