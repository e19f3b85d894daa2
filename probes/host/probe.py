"""The probe of one host: `probe_host` reads sysfs and NVML, measures GPUs and lists ports.

With a root directory other than `/`, a copy of another system, only files are read: NVML, the
benchmark and the addresses of interfaces belong to this system.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probes.host.report import HostIdentity, HostReport
from probes.inputs.messages import printable
from probes.network.addresses import (
    SYSFS_INFINIBAND,
    InterfaceAddress,
    interface_addresses,
    management_address,
    rdma_subnet,
)
from probes.network.instruments.tools import MEASURING, MEASURING_RDMA, missing_tools
from probes.network.ports import NetworkPort
from probes.nvidia.matrix_check import check_with_nvidia_smi
from probes.nvidia.nvml import VARIABLE, NvmlFacts, read_nvml
from probes.nvidia.nvml_inventory import gpu_classes, join_nvml
from probes.p2p.apply import apply_p2p
from probes.p2p.figures import P2pFigures, p2p_figures
from probes.p2p.run import run_p2p
from probes.pci.inventory import Gap, NicPort, PciInventory
from probes.pci.records import gap_notes, host_topology
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import DirectoryTree, FileTree
from probes.topology.graph import Topology
from tuccl.errors import MachineError, TreeError

Progress = Callable[[str], None]
"""Receives a short text about the current activity."""

_A_COPY = (
    "not the root of this system, so NVML is not asked: GPUs from sysfs alone, without NVLinks"
)
_NO_ADDRESS = "no IP address, so the network behind it is not measured; give the interface one"
_MAX_NOTE = 1000
_P2P_TIMEOUT_S = 60.0
"""Time limit of the measurement of all GPU pairs."""
_NVIDIA = "10de:"


@dataclass(frozen=True, slots=True)
class HostProbeOptions:
    """Options of the probe of one host."""

    root: Path = Path("/")
    """Directory with `sys` and `proc`; any other than `/` is a copy of another system."""
    interfaces: tuple[str, ...] = ()
    """Glob patterns of network interfaces that count although they look like pseudo devices."""
    measure_p2p: bool = True
    every_gpu: bool = False
    """Whether GPUs count that CUDA_VISIBLE_DEVICES hides from this process."""
    check_matrix: bool = True
    """Whether to compare nvidia-smi's matrix of GPUs, which takes a second and adds only notes."""

    @property
    def is_live(self) -> bool:
        """Whether this system is probed, not a copy of another."""
        return os.path.realpath(self.root) == "/"


def _silent(_: str) -> None:
    """Ignore progress, for callers without a display."""


def probe_host(options: HostProbeOptions, on_progress: Progress = _silent) -> HostReport:
    """Probe this host: reading takes well under a second, measuring GPUs takes seconds.

    The topology's notes state what could not be read or measured.

    Raises:
        MachineError: A GPU is partitioned into MIG instances, or the root directory is not that of
            a system.
        InvalidTopologyError: the system describes a machine that cannot exist.
    """
    on_progress("reading sysfs")
    tree = DirectoryTree(options.root)
    inventory = read_inventory(tree, options)
    identity = _identity(tree, inventory.hostname, live=options.is_live)
    if not options.is_live:
        facts = NvmlFacts(available=False, gaps=(Gap(str(options.root), _A_COPY),))
        topology = describe_host(inventory, facts, identity.hostname)
        ports = network_ports(topology, inventory, identity.hostname, {})
        return HostReport(identity, topology, ports)
    on_progress("asking NVML")
    hidden = VARIABLE if options.every_gpu else ""
    environment = {name: value for name, value in os.environ.items() if name != hidden}
    facts = read_nvml(environment=environment, classes=gpu_classes(inventory))
    topology = describe_host(inventory, facts, identity.hostname)
    has_cuda = facts.records or any(gpu.model.startswith(_NVIDIA) for gpu in topology.gpus)
    if has_cuda and options.check_matrix:
        check_notes = check_with_nvidia_smi(topology, inventory, facts)
        topology = replace(topology, notes=(*topology.notes, *check_notes))
    figures = None
    if options.measure_p2p and has_cuda:
        topology, figures = measure_gpus(topology, _P2P_TIMEOUT_S, on_progress)
    addresses = interface_addresses()
    ports = network_ports(topology, inventory, identity.hostname, addresses)
    ports = with_rdma_subnets(ports, inventory, addresses)
    unaddressed = [port.os_name for port in ports if not (port.address or port.is_rdma_only)]
    notes = gap_notes(Gap(name, _NO_ADDRESS) for name in unaddressed)
    topology = replace(topology, notes=(*topology.notes, *notes))
    return HostReport(identity, topology, ports, _missing_tools(ports), figures, facts.domain)


def describe_host(inventory: PciInventory, facts: NvmlFacts, hostname: str) -> Topology:
    """Return the host's topology from sysfs and NVML, without measurements.

    Raises:
        InvalidTopologyError: the machine cannot exist.
    """
    topology = host_topology(join_nvml(inventory, facts), hostname, facts.records)
    memory = {gpu.address: gpu.memory_bytes for gpu in facts.gpus}
    return replace(
        topology,
        devices=tuple(
            replace(device, memory_bytes=memory.get(device.bus_id, 0))
            for device in topology.devices
        ),
        notes=_printable_notes(topology),
        hosts=(hostname,),
    )


def measure_gpus(
    topology: Topology, timeout_s: float, on_progress: Progress
) -> tuple[Topology, P2pFigures | None]:
    """Measure the GPUs and apply the figures; if that fails, only a note is added."""
    on_progress("measuring GPUs")
    figures = None
    try:
        report = run_p2p(timeout_s, on_progress)
        measured = apply_p2p(topology, report)
        figures = p2p_figures(topology, report)
    except MachineError as error:
        note = f"GPUs were not measured, their links have data sheet figures: {error}."
        measured = replace(topology, notes=(*topology.notes, note))
    return replace(measured, notes=_printable_notes(measured)), figures


def read_inventory(tree: FileTree, options: HostProbeOptions) -> PciInventory:
    """Read sysfs below the root; on this system it may be empty, as in some containers.

    Raises:
        MachineError: the root directory is not that of a system.
    """
    try:
        return read_sysfs(tree, str(options.root), options.interfaces)
    except MachineError as error:
        if not options.is_live:
            raise
        gap = Gap("/sys", f"{error}".removeprefix(f"{options.root}: "))
        return PciInventory(str(options.root), (), gaps=(gap,))


def network_ports(
    topology: Topology,
    inventory: PciInventory,
    hostname: str,
    addresses: Mapping[str, Sequence[InterfaceAddress]],
) -> tuple[NetworkPort, ...]:
    """Return the port of every NIC, in the order of the NICs, with its addresses, best first.

    A controller without a port has no driver, or its interface is in another namespace: this host
    cannot use it.
    """
    by_name: dict[str, list[NicPort]] = {}
    for port in inventory.ports:
        if port.active:
            by_name.setdefault(port.name, []).append(port)
    found = []
    for nic in topology.nics:
        # Ports of one RDMA device share its name and have the same order in both lists.
        named = by_name.get(nic.os_name)
        if not named:
            continue
        port = named.pop(0)
        known = addresses.get(port.interface, ())
        best = known[0] if known else InterfaceAddress("", 0)
        found.append(
            NetworkPort(
                host=nic.node,
                host_name=hostname,
                nic=nic.index,
                os_name=nic.os_name,
                interface=port.interface,
                rdma_device=port.rdma_device,
                rdma_port=port.rdma_port,
                address=best.address,
                prefix_length=best.prefix_length,
                line_rate_gb_per_s=nic.line_rate_gb_per_s,
                line_rate_provenance=nic.line_rate_provenance,
                other_addresses=tuple(f"{a.address}/{a.prefix_length}" for a in known[1:]),
            )
        )
    return tuple(found)


def with_rdma_subnets(
    ports: Sequence[NetworkPort],
    inventory: PciInventory,
    addresses: Mapping[str, Sequence[InterfaceAddress]],
    infiniband: Path = SYSFS_INFINIBAND,
) -> tuple[NetworkPort, ...]:
    """Add RDMA subnets and the management address, which measure ports without an address."""
    layers = {(port.rdma_device, port.rdma_port): port.link_layer for port in inventory.ports}
    address = management_address(addresses, [port.interface for port in inventory.ports])
    return tuple(
        replace(
            port,
            management_address=address,
            rdma_subnet=rdma_subnet(device, number, layers.get((device, number), ""), infiniband),
        )
        if (device := port.rdma_device) and (number := port.rdma_port)
        else port
        for port in ports
    )


def _identity(tree: FileTree, hostname: str, *, live: bool) -> HostIdentity:
    namespace = ""
    if live:
        hostname = hostname or socket.gethostname()
        try:
            namespace = str(os.stat("/proc/self/ns/net").st_ino)  # noqa: PTH116 - a link to no file
        except OSError:
            namespace = ""
    try:
        boot_id = tree.read("proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
    except TreeError:
        boot_id = ""
    return HostIdentity(printable(hostname) or "host", printable(boot_id), namespace)


def _missing_tools(ports: Sequence[NetworkPort]) -> tuple[str, ...]:
    """Names of missing tools that the measurement of these ports needs."""
    rdma = MEASURING_RDMA if any(port.rdma_device for port in ports) else ()
    return tuple(map(str, missing_tools((*MEASURING, *rdma)))) if ports else ()


def _printable_notes(topology: Topology) -> tuple[str, ...]:
    """Notes made printable, since text of a driver or the environment may not be."""
    return tuple(printable(note, _MAX_NOTE) for note in topology.notes)
