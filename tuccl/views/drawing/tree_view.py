"""`tree_lines`: a topology as text, with CPUs at the roots and GPUs and NICs at the leaves.

Every figure has its provenance. Hosts of equal fingerprint are shown once, with the figures of the
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from probes.topology.bandwidth_class import bandwidth_class
from probes.topology.device_tree import Branch, host_trees
from probes.topology.figure_text import (
    LINK_NAMES,
    counted,
    device_facts,
    link_text,
    range_text,
    short_name,
    speed,
    summary,
)
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, PairLimit, Topology
from probes.topology.hosts import HostGroup, folded, host_name, hosts_alike

_MAX_GROUPS = 8
_MAX_LIMITS = 8
_GPU_LINKS = (LinkKind.NVLINK, LinkKind.XGMI)


def tree_lines(topology: Topology) -> list[str]:
    """Format the topology as lines of text; its link figures must be valid.

    Raises:
        InvalidTopologyError: PCIe switches are nested too deep.
    """
    groups = hosts_alike(topology)
    lines = [f"{topology.name}: {summary(topology.devices, topology.host_count)}"]
    lines.append(f"fingerprint {topology.fingerprint()}")
    for group in groups[:_MAX_GROUPS]:
        lines += ["", _title(topology, group), *_host_lines(group.example)]
    if len(groups) > _MAX_GROUPS:
        rest = [node for group in groups[_MAX_GROUPS:] for node in group.nodes]
        names = folded(host_name(topology, node) for node in rest)
        lines += ["", f"and {counted(len(rest), 'host')} of other kinds: {names}"]
    network = list(_network_lines(topology))
    if network:
        lines += ["", "network", *network]
    if topology.notes:
        lines += ["", "notes", *(f"- {note}" for note in topology.notes)]
    return lines


def _title(topology: Topology, group: HostGroup) -> str:
    names = folded(host_name(topology, node) for node in group.nodes)
    if len(group.nodes) == 1:
        return f"{group.kind}{':' if group.example.host_count > 1 else ''} {names}"
    first = host_name(topology, group.nodes[0])
    return f"{group.kind}: {names}; the figures are those of {first}"


def _host_lines(host: Topology) -> Iterator[str]:
    trees = host_trees(host)
    blocks = [*_branch_blocks(trees.roots, host), *_fabric_blocks(host)]
    blocks += [[f"{link.src} - {link.dst}: {link_text(link)}"] for link in trees.switch_links]
    if host.limits:
        blocks.append(_limit_lines(host.limits))
    yield from _with_tree_lines(blocks)


def _branch_blocks(branches: Sequence[Branch], host: Topology) -> list[list[str]]:
    """Return a block of lines for each branch."""
    blocks = []
    for branch in branches:
        facts = list(device_facts(branch.device))
        if branch.uplink is not None:
            facts.append(link_text(branch.uplink))
        facts += [
            f"{LINK_NAMES[link.kind]} {link_text(link)}"
            for link in host.links_from[branch.device.name]
            if link.kind is LinkKind.C2C
            or (link.kind in _GPU_LINKS and host.device[link.dst].kind is DeviceKind.CPU)
        ]
        if host.host_count > 1 and branch.uplink is None:
            facts.append(f"host {branch.device.host_in_node + 1} of {host.host_count}")
        head = "  ".join([short_name(branch.device), *facts])
        blocks.append([head, *_with_tree_lines(_branch_blocks(branch.children, host))])
    return blocks


def _with_tree_lines(blocks: Sequence[list[str]]) -> Iterator[str]:
    """Prefix the lines of each block with the lines of the tree."""
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        for row, line in enumerate(block):
            if row == 0:
                yield ("└── " if last else "├── ") + line
            else:
                yield ("    " if last else "│   ") + line


def _fabric_blocks(host: Topology) -> Iterator[list[str]]:
    between_cpus = [link for link in host.links if link.kind is LinkKind.UPI]
    if between_cpus:
        cpus = sum(device.kind is DeviceKind.CPU for device in host.devices)
        pairs = len({frozenset((link.src, link.dst)) for link in between_cpus})
        extent = "every pair" if pairs == cpus * (cpus - 1) // 2 else f"{pairs} pairs"
        yield [f"between CPUs: {extent}, {range_text(between_cpus)}"]
    for switch in host.devices:
        if switch.kind is DeviceKind.NVSWITCH:
            yield from ([line] for line in _nvswitch_lines(host, switch))
    for kind in _GPU_LINKS:
        mesh = [
            link
            for link in host.links
            if link.kind is kind
            and {host.device[link.src].kind, host.device[link.dst].kind} == {DeviceKind.GPU}
        ]
        if mesh:
            yield _mesh_lines(host, kind, mesh)


def _nvswitch_lines(host: Topology, switch: Device) -> Iterator[str]:
    """Yield a line for all GPUs with equal link count and class."""
    groups: dict[tuple[int, int], list[Link]] = {}
    for link in host.links_to[switch.name]:
        groups.setdefault((link.lanes, bandwidth_class(link)), []).append(link)
    for (lanes, _), links in groups.items():
        gpus = counted(len(links), "GPU")
        if len(groups) > 1:
            gpus = folded(short_name(host.device[link.src]) for link in links)
        yield f"NVSwitch: {gpus} x {counted(lanes, 'link')}, {range_text(links)} each"


def _mesh_lines(host: Topology, kind: LinkKind, mesh: Sequence[Link]) -> list[str]:
    """Format the link counts between GPUs as a matrix in rank order, from row to column."""
    count = Counter[tuple[str, str]]()
    for link in mesh:
        count[link.src, link.dst] += link.lanes
    per_link = sorted({speed(link.bandwidth_gb_per_s / link.lanes) for link in mesh})
    provenance = " and ".join(sorted({link.provenance.value for link in mesh}))
    gpus = host.gpus
    width = max(len(short_name(gpu)) for gpu in gpus) + 1
    lines = [f"{LINK_NAMES[kind]} between GPUs: {' or '.join(per_link)} per link, {provenance}"]
    lines.append(" " * width + "".join(f"{short_name(gpu):>{width}}" for gpu in gpus))
    for row in gpus:
        cells = (str(count[row.name, column.name] or "-") for column in gpus)
        lines.append(f"{short_name(row):<{width}}" + "".join(f"{cell:>{width}}" for cell in cells))
    return lines


def _limit_lines(limits: Sequence[PairLimit]) -> list[str]:
    slowest = sorted(limits, key=lambda limit: limit.bandwidth_gb_per_s)
    lines = [f"{counted(len(limits), 'pair')} measured slower than the links between them"]
    lines += [
        f"    {limit.src} -> {limit.dst}: {speed(limit.bandwidth_gb_per_s)}"
        for limit in slowest[:_MAX_LIMITS]
    ]
    if len(slowest) > _MAX_LIMITS:
        lines.append(f"    and {len(slowest) - _MAX_LIMITS:,} more, none slower")
    return lines


def _network_lines(topology: Topology) -> Iterator[str]:
    """Yield the switches, grouped by number and class of ports, then cables between NICs."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in topology.devices:
        if device.kind is DeviceKind.NETWORK_SWITCH:
            groups.setdefault(_ports(topology, device), []).append(device)
    for switches in groups.values():
        ports = [link for switch in switches for link in topology.links_to[switch.name]]
        peers = Counter(topology.device[link.src].kind for link in ports)
        each = " and ".join(
            counted(number // len(switches), "NIC" if kind is DeviceKind.NIC else "other switch")
            for kind, number in peers.items()
        )
        names = folded(switch.name for switch in switches)
        with_each = f"with {each}{' each' if len(switches) > 1 else ''}" if ports else "unconnected"
        figures = f", {range_text(ports)}" if ports else ""
        yield f"- {counted(len(switches), 'switch')} {with_each}{figures}: {names}"
    yield from _direct_lines(topology)


def _ports(topology: Topology, switch: Device) -> tuple[object, ...]:
    return tuple(
        sorted(
            Counter(
                (topology.device[link.src].kind.value, bandwidth_class(link))
                for link in topology.links_to[switch.name]
            ).items()
        )
    )


def _direct_lines(topology: Topology) -> Iterator[str]:
    """Yield a line about cables between NICs without a switch."""
    direct: Iterable[Link] = (
        link
        for link in topology.links
        if link.kind is LinkKind.NETWORK
        and DeviceKind.NETWORK_SWITCH
        not in (topology.device[link.src].kind, topology.device[link.dst].kind)
    )
    links = tuple(direct)
    if links:
        pairs = len({frozenset((link.src, link.dst)) for link in links})
        yield f"- {counted(pairs, 'cable')} from NIC to NIC, {range_text(links)}"
