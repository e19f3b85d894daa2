"""`export_losses`: what NCCL's XML does not say of a topology that is written as such.

Beside what the form has no place for, the file is read back and compared, so that nothing is lost
without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.comparison.changes import describe_changes
from probes.errors import ProbeError
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.nccl_xml.parser import parse_nccl_xml
from probes.topology.figure_text import counted
from probes.topology.graph import Provenance, Topology

_MOST_CHANGES = 4


def export_losses(topology: Topology) -> tuple[str, ...]:
    """What the file does not say, one sentence each; empty when it says everything.

    Raises:
        ProbeError: as `topology_to_nccl_xml`.
    """
    text = topology_to_nccl_xml(topology)
    measured = sum(link.provenance is Provenance.MEASURED for link in topology.links)
    timed = sum(link.latency_provenance is Provenance.MEASURED for link in topology.links)
    guessed = sum("<cpu " in line and "arch=" in line for line in text.splitlines())
    memory = sum(gpu.memory_bytes > 0 for gpu in topology.gpus)
    losses = [
        f"Not in the file: {what}."
        for count, what in (
            (measured, f"the bandwidth measured on {counted(measured, 'link')}"),
            (timed, f"the latency measured on {counted(timed, 'link')}"),
            (len(topology.limits), f"the limit of {counted(len(topology.limits), 'pair')}"),
            (memory, f"the memory of {counted(memory, 'GPU')}"),
            (any(topology.hosts), "the names of hosts"),
        )
        if count
    ]
    if guessed:
        losses.append(
            f"The make of {counted(guessed, 'CPU')} was chosen by the bandwidth between them."
        )
    return (*losses, *_misread(topology, text))


def _misread(topology: Topology, text: str) -> Iterator[str]:
    """What is another machine when the file is read back."""
    try:
        back = parse_nccl_xml(text, f"{topology.name}.xml")
    except ProbeError as error:
        yield f"The file cannot be read back: {error}."
        return
    changes = describe_changes(replace(topology, limits=()), back)
    yield from (f"Read back: {change}" for change in changes[:_MOST_CHANGES])
    if len(changes) > _MOST_CHANGES:
        yield f"Read back: {len(changes) - _MOST_CHANGES} more changes."
