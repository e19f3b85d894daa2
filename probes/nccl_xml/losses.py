"""`export_losses`: the losses of a topology that is written as NCCL's XML.

Beside the facts without a place in the form, the file is read back and compared, so that no loss
goes unreported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.comparison.changes import describe_changes
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.nccl_xml.parser import parse_nccl_xml
from probes.topology.figure_text import counted
from probes.topology.graph import Provenance, Topology
from tuccl.errors import MachineError

_MAX_CHANGES = 4


def export_losses(topology: Topology) -> tuple[str, ...]:
    """Return a sentence for each loss; empty when the file represents everything.

    Raises:
        MachineError: as `topology_to_nccl_xml`.
    """
    text = topology_to_nccl_xml(topology)
    measured = sum(link.provenance is Provenance.MEASURED for link in topology.links)
    timed = sum(link.latency_provenance is Provenance.MEASURED for link in topology.links)
    guessed = sum("<cpu " in line and "arch=" in line for line in text.splitlines())
    memory = sum(gpu.memory_bytes > 0 for gpu in topology.gpus)
    losses = [
        f"Not in the file: {fact}."
        for count, fact in (
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
    return (*losses, *_read_back_changes(topology, text))


def _read_back_changes(topology: Topology, text: str) -> Iterator[str]:
    """Yield a sentence for each change of the machine when the file is read back."""
    try:
        read_back = parse_nccl_xml(text, f"{topology.name}.xml")
    except MachineError as error:
        yield f"The file cannot be read back: {error}."
        return
    changes = describe_changes(replace(topology, limits=()), read_back)
    yield from (f"Read back: {change}" for change in changes[:_MAX_CHANGES])
    if len(changes) > _MAX_CHANGES:
        yield f"Read back: {len(changes) - _MAX_CHANGES} more changes."
