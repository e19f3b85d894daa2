"""Schedules in files: read and write them, and note what runtimes would refuse."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from probes.inputs.regular_file import read_regular_file
from probes.topology.graph import Topology
from sketches.chunking import msccl_multiple_bytes
from synthesizer.formats.exports import EXPORTS, export_files, format_of_path
from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.formats.nccl_graph_figures import GraphMachine
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.msccl_limits import check_limits
from tuccl.errors import UsageError
from tuccl.schedules.schedule_choice import Tried
from tuccl.workspace.atomic_file import write_atomically

STDOUT = Path("-")
_STANDARD_INPUT = Path("/dev/stdin")
_OF_MSCCL = ("msccl", "msccl-microsoft")


def read_schedule_file(file: Path) -> Algorithm:
    """Read the schedule of an MSCCL XML file, or of standard input.

    Raises:
        UsageError: The file cannot be read.
        FormatError: It is not a schedule.
    """
    try:
        given = sys.stdin.buffer.read() if file == _STANDARD_INPUT else read_regular_file(file)
        text = given.decode()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; name an MSCCL XML file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; name an MSCCL XML file") from error
    if text.lstrip().startswith("{"):
        raise UsageError(
            f"{file} is JSON, not MSCCL XML; of a plan of MSCCL++ give the schedule that it was "
            "made from: `tuccl synthesize --format msccl` writes it"
        )
    return read_msccl_xml(text, str(file))


def wanted_format(name: str | None, output: Path | None) -> str | None:
    """Return the format by its name, else by the file's; None where nothing is written.

    Raises:
        UsageError: There is no such format.
        FormatError: The file's name has no format.
    """
    if name is not None:
        if name not in EXPORTS:
            raise UsageError(f"format {name!a:.60} is unknown: use one of {', '.join(EXPORTS)}")
        return name
    if output is None:
        return None
    return next(iter(EXPORTS)) if output == STDOUT else format_of_path(str(output))


def schedule_texts(tried: Tried, topology: Topology, name: str) -> tuple[str, ...]:
    """Return a schedule in a format: one text for all nodes, or one for each.

    Raises:
        FormatError: The format cannot express it.
        ScheduleError: It is wrong.
    """
    return export_files(tried.algorithm, name, GraphMachine(topology, tried.sketch))


def write_schedule(output: Path, name: str, texts: Sequence[str]) -> tuple[Path, ...]:
    """Write a file, or one for each node: `a.graph.xml` becomes `a.node0.graph.xml` and so on.

    Raises:
        WorkspaceError: A file cannot be written.
    """
    paths = [output]
    if len(texts) > 1:
        suffix = EXPORTS[name].suffix if output.name.endswith(EXPORTS[name].suffix) else ""
        stem = output.name.removesuffix(suffix)
        paths = [output.with_name(f"{stem}.node{n}{suffix}") for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        write_atomically(path, text)
    return tuple(paths)


def is_for_msccl(name: str | None) -> bool:
    """Whether MSCCL runtimes read the format; they are what schedules are for if none is named."""
    return name is None or name in _OF_MSCCL


def runtime_notes(algorithm: Algorithm, size_bytes: int, name: str | None) -> Iterator[str]:
    """Yield reasons for an MSCCL runtime to leave the call to NCCL, a sentence each."""
    if not is_for_msccl(name):
        return
    parts = algorithm.collective.parts(algorithm.ranks)
    multiple = msccl_multiple_bytes(algorithm.chunks_per_loop, parts)
    if size_bytes % multiple:
        yield (
            f"an MSCCL runtime takes a schedule of {algorithm.chunks_per_loop} chunks for "
            f"multiples of {multiple} bytes (4-byte elements), so not for this size"
        )
    for limit in check_limits(algorithm):
        yield f"an MSCCL runtime would not run it: {limit}"
