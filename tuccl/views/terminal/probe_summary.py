"""The report of `tuccl probe`: devices, links, the matrix between GPUs, faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from probes.host.preflight import Check
from probes.network.campaign.findings import ClassFigure
from probes.network.campaign.outliers import Quantity
from probes.p2p.figures import P2pFigures
from probes.p2p.report import Figure
from probes.topology.figure_text import counted, gpu_architecture, three_digits
from probes.topology.graph import Device, DeviceKind, Link, Provenance, Topology
from probes.topology.hosts import HostGroup, folded, host_name, hosts_alike
from probes.topology.paths import local_path
from tuccl.crew.cluster_probe import ProbeResult
from tuccl.views.terminal.display import standard_output
from tuccl.views.terminal.tables import print_rows

_MOST_GPUS = 16
"""Greatest number of GPUs of a matrix that fits a screen."""
_UNITS = {Quantity.BANDWIDTH: "GB/s", Quantity.LATENCY: "us"}


def print_probe(result: ProbeResult) -> None:
    """Print the result of a probe, faults last."""
    console = standard_output()
    print_topology(result.topology, console, result.gpu_figures)
    if result.findings is not None and result.findings.figures:
        _print_classes(result.findings.figures, console)
    for note in result.topology.notes:
        console.print(f"- {note}", soft_wrap=True)
    took = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in result.seconds.items())
    measured = 0 if result.findings is None else len(result.findings.results)
    console.print(f"{took}; {measured} measurements between hosts")


def print_checks(checks: Sequence[Check]) -> None:
    """Print what can be probed here, and what cannot."""
    columns = ("part", "status", "~what it gives", "~why", "~what to do")
    rows = (
        (check.subject, check.status.value, check.what_it_gives, check.why, check.remedy)
        for check in checks
    )
    print_rows("", columns, rows)


def print_topology(
    topology: Topology, console: Console, figures: Sequence[P2pFigures | None] = ()
) -> None:
    """Print hosts by kind, links by class, and the bandwidths between GPUs of a host.

    Args:
        topology: One host or several.
        console: The console to print on.
        figures: The benchmark's figures by host.
    """
    console.print(
        f"{topology.name}: {counted(topology.host_count, 'host')}, "
        f"{counted(len(topology.gpus), 'GPU')}, {counted(len(topology.nics), 'NIC')}; "
        f"fingerprint {topology.fingerprint()}"
    )
    groups = hosts_alike(topology)
    for group in groups:
        names = folded(topology.hosts[node] for node in group.nodes if node < len(topology.hosts))
        inside = "; ".join(_inside(group))
        console.print(f"  {names}: {inside}" if names else f"  {inside}")
    if topology.links:
        _print_links(topology, console)
    for group in groups:
        if _is_measured(group.example):
            _print_gpu_matrix(group.example, group.nodes[0], console)
        measured = {node: found for node in group.nodes if (found := _at(figures, node))}
        words = figures_line(list(measured.values()))
        if words:
            names = folded(host_name(topology, node) for node in measured)
            console.print(f"{names}: {words}", soft_wrap=True)


def figures_line(hosts: Sequence[P2pFigures]) -> str:
    """Return the figures beside the matrix, over all GPUs of equal hosts; empty if none."""
    pairs = [pair for figures in hosts for pair in figures.pairs]
    gpus = [gpu for figures in hosts for gpu in figures.gpus]
    writes = _medians(pair.kernel_write_gb_per_s for pair in pairs)
    reads = _medians(pair.kernel_read_gb_per_s for pair in pairs)
    latencies = _medians(pair.write_latency_us for pair in pairs)
    to_host = _medians(gpu.to_host_gb_per_s for gpu in gpus)
    from_host = _medians(gpu.from_host_gb_per_s for gpu in gpus)
    outwards = _medians(gpu.fan_out_gb_per_s for gpu in gpus)
    inwards = _medians(gpu.fan_in_gb_per_s for gpu in gpus)
    kernels = [f"{_told(writes)} GB/s (write)"] if writes else []
    kernels += [f"{_told(reads)} GB/s (read)"] if reads else []
    copies = [f"to host {_told(to_host)}"] if to_host else []
    copies += [f"from host {_told(from_host)}"] if from_host else []
    copies += [f"to all other GPUs at once {_told(outwards)}"] if outwards else []
    copies += [f"from all others {_told(inwards)}"] if inwards else []
    parts = [f"kernel copies {', '.join(kernels)}"] if kernels else []
    parts += [f"a write and its fence {_told(latencies)} us"] if latencies else []
    parts += [f"copies {', '.join(copies)} GB/s"] if copies else []
    return "; ".join(parts)


def _at(figures: Sequence[P2pFigures | None], node: int) -> P2pFigures | None:
    return figures[node] if node < len(figures) else None


def _medians(figures: Iterable[Figure | None]) -> list[float]:
    return [figure.median for figure in figures if figure is not None]


def _told(figures: Sequence[float]) -> str:
    """`369`, `367 to 371`: three digits."""
    low, high = three_digits(min(figures)), three_digits(max(figures))
    return low if low == high else f"{low} to {high}"


def _inside(group: HostGroup) -> Iterator[str]:
    machine = group.example
    for gpus, count in Counter(_gpu_words(gpu) for gpu in machine.gpus).items():
        yield f"{count} x {gpus}"
    if not machine.gpus:
        yield "no GPU"
    for nics, count in Counter(_nic_words(nic) for nic in machine.nics).items():
        yield f"{count} x {nics}"
    if not machine.nics:
        yield "no NIC"


def _gpu_words(gpu: Device) -> str:
    words = [f"GPU {gpu.model}".rstrip()]
    if architecture := gpu_architecture(gpu, "sm_"):
        words.append(architecture)
    if gpu.memory_bytes:
        words.append(f"{gpu.memory_bytes / 2**30:.0f} GiB")
    return " ".join(words)


def _nic_words(nic: Device) -> str:
    speed = f"{nic.line_rate_gb_per_s:g} GB/s" if nic.line_rate_gb_per_s else "speed unknown"
    return f"NIC {nic.model} {speed}".replace("  ", " ")


def _print_links(topology: Topology, console: Console) -> None:
    classes: dict[tuple[str, ...], list[Link]] = {}
    for link in topology.links:
        src, dst = (topology.device[name].kind for name in (link.src, link.dst))
        ends = sorted((src, dst), key=list(DeviceKind).index)
        between = " - ".join(kind.value.replace("_", " ") for kind in ends)
        key = (link.kind.value, between, str(link.lanes), link.provenance.value)
        classes.setdefault((*key, link.latency_provenance.value), []).append(link)
    rows = []
    for (kind, between, lanes, source, latency_source), links in classes.items():
        speeds = _range([link.bandwidth_gb_per_s for link in links])
        times = _range([link.latency_us for link in links], digits=3)
        figures = (f"{speeds} {source}", f"{times} {latency_source}")
        rows.append((kind, between, lanes, str(len(links)), *figures))
    columns = ("kind", "between", ">lanes", ">count", ">GB/s", ">us")
    print_rows("links", columns, rows, console=console)


def _print_classes(figures: Sequence[ClassFigure], console: Console) -> None:
    rows = [
        (
            figure.link_class.distance.value,
            f"{figure.link_class.line_rate_gb_per_s:g}",
            figure.link_class.tool,
            figure.quantity.value,
            f"{figure.median:.4g} {_UNITS[figure.quantity]}",
            f"{figure.spread:.1%}",
            str(figure.count),
        )
        for figure in figures
    ]
    columns = ("pairs of the", "line rate GB/s", "by", "what", "median", "spread", "count")
    print_rows("between hosts", columns, rows, console=console)


def _range(figures: list[float], digits: int = 4) -> str:
    low, high = f"{min(figures):.{digits}g}", f"{max(figures):.{digits}g}"
    return low if low == high else f"{low} to {high}"


def _is_measured(machine: Topology) -> bool:
    sources = [link.provenance for link in machine.links]
    return 2 <= len(machine.gpus) <= _MOST_GPUS and Provenance.MEASURED in sources


def _print_gpu_matrix(machine: Topology, node: int, console: Console) -> None:
    name = machine.hosts[node] if node < len(machine.hosts) else machine.name
    print_rows(
        f"{name}: from GPU (row) to GPU (column), GB/s of a copy | us from a kernel's write until "
        "the other GPU sees it",
        ("", *(f">{gpu.index}" for gpu in machine.gpus)),
        (
            (str(src.index), *(_cell(machine, src, dst) for dst in machine.gpus))
            for src in machine.gpus
        ),
        console=console,
    )


def _cell(machine: Topology, src: Device, dst: Device) -> str:
    path = None if src.name == dst.name else local_path(machine, src.name, dst.name)
    if path is None:
        return "-"
    measured = all(link.latency_provenance is Provenance.MEASURED for link in path.links)
    latency = f" | {three_digits(path.latency_us)}" if measured else ""
    return f"{three_digits(path.bandwidth_gb_per_s)}{latency}"
