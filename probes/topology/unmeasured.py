"""`unmeasured`: what of a machine's description nobody measured or stated, though times rest on it.

A model of the machine computes with these figures as with the others, so its times are as wrong as
they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from probes.topology.graph import DeviceKind, Link, LinkKind, Provenance, Topology

_MOST_NAMES = 4
"""Greatest number of NICs that are named."""


def unmeasured(topology: Topology, *, of_nccl: bool = False) -> str:
    """Return a sentence on the figures between GPUs that are assumed; empty if there are none.

    With `of_nccl` times are those of NCCL's kernels, which depend on the GPUs, too.
    """
    gpus = _gpus(topology) if of_nccl else ()
    found = "; ".join([*gpus, *_inside(topology), *_between(topology)])
    return f"Assumed and not measured, though these times rest on it: {found}." if found else ""


def _gpus(topology: Topology) -> Iterator[str]:
    """Yield the generation that models take where the first GPU's is not known."""
    if topology.gpus and not topology.gpus[0].compute_capability:
        yield "GPUs as fast as an A100, as no compute capability is stated"


def _inside(topology: Topology) -> Iterator[str]:
    """Yield assumed bandwidths of GPU links: of NVLink, or of PCIe if GPUs have nothing else."""
    ends = {gpu.name for gpu in topology.gpus}
    links = [link for link in topology.links if {link.src, link.dst} & ends]
    fast = [link for link in links if link.kind is not LinkKind.PCIE]
    for kind in sorted({link.kind for link in fast or links}):
        own = [link for link in fast or links if link.kind is kind]
        assumed = [link for link in own if link.provenance is Provenance.ASSUMED]
        if assumed:
            name = {LinkKind.NVLINK: "NVLink", LinkKind.PCIE: "PCIe"}.get(kind, kind.value)
            yield f"{_range(link.bandwidth_gb_per_s for link in assumed)} GB/s of {name} for GPUs"


def _between(topology: Topology) -> Iterator[str]:
    """Yield assumed bandwidths and latencies of the network between nodes."""
    network = [link for link in topology.links if link.kind is LinkKind.NETWORK]
    nics = [link for link in network if topology.device[link.src].kind is DeviceKind.NIC]
    slow = [link for link in nics if link.provenance is Provenance.ASSUMED]
    if slow:
        ends = (topology.device[link.src] for link in slow)
        names = list(dict.fromkeys(nic.os_name or nic.name for nic in ends))
        more = len(names) - _MOST_NAMES
        listed = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        yield f"{_range(8 * link.bandwidth_gb_per_s for link in slow)} Gbit/s for {listed}"
    late: list[Link] = [link for link in nics if link.latency_provenance is Provenance.ASSUMED]
    if late:
        yield f"{_range(2 * link.latency_us for link in late)} us from NIC to NIC"


def _range(figures: Iterable[float]) -> str:
    known = sorted(figures)
    low, high = f"{known[0]:.3g}", f"{known[-1]:.3g}"
    return low if low == high else f"{low} to {high}"
