"""Writes small /sys trees for the tests: devices, ports, NUMA nodes, and whole machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from probes.nccl_xml.records import CpuRecord, GpuRecord, PciRecord, read_records
from probes.pci.inventory import PciInventory
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import TarTree
from tests.shared_data import SHARED_DATA

GPU, INFINIBAND, ETHERNET, BRIDGE = "0x030200", "0x020700", "0x020000", "0x060400"


@dataclass(frozen=True)
class SysfsTree:
    """A root directory that tests fill."""

    root: Path

    def write(self, path: str, text: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
        return file

    def link(self, path: str, target: str) -> None:
        """A link inside the tree, relative as the kernel writes them."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to("../" * path.count("/") + target)

    def device(
        self,
        way: Sequence[str],
        *,
        pci_class: str = BRIDGE,
        ids: tuple[str, str] = ("0x8086", "0x1234"),
        numa_node: int = -1,
        link: tuple[str, int] | None = ("16.0 GT/s PCIe", 16),
        resource: str = "0x0000000000000000 0x0000000000000000 0x0000000000000000",
    ) -> str:
        """A function: its root bus, the bridges above it, its address. Returns its folder."""
        folder = "sys/devices/" + "/".join(way)
        values = {
            "class": pci_class,
            "vendor": ids[0],
            "device": ids[1],
            "numa_node": numa_node,
            "resource": resource,
        }
        if link is not None:
            for name in ("max", "current"):
                values |= {f"{name}_link_speed": link[0], f"{name}_link_width": link[1]}
        for name, value in values.items():
            self.write(f"{folder}/{name}", str(value))
        self.link(f"sys/bus/pci/devices/{way[-1]}", folder)
        return folder

    def rdma(
        self,
        name: str,
        folder: str,
        *,
        port: int = 1,
        rate: str = "200 Gb/sec (4X HDR)",
        state: str = "4: ACTIVE",
        layer: str = "InfiniBand",
    ) -> str:
        """A port of an RDMA device that sits in the folder of a PCI function."""
        place = f"{folder}/infiniband/{name}"
        for file, value in {"rate": rate, "state": state, "link_layer": layer}.items():
            self.write(f"{place}/ports/{port}/{file}", value)
        self.write(f"{place}/ports/{port}/phys_state", "5: LinkUp")
        if not (self.root / f"sys/class/infiniband/{name}").is_symlink():
            self.link(f"{place}/device", folder)
            self.link(f"sys/class/infiniband/{name}", place)
        return place

    def interface(
        self,
        name: str,
        folder: str,
        *,
        speed: str = "100000",
        state: str = "up",
        dev_port: int = 0,
        kind: int = 1,
    ) -> str:
        """A network interface whose device is the folder; without one it is virtual."""
        place = f"{folder or 'sys/devices/virtual'}/net/{name}"
        values = {"speed": speed, "operstate": state, "dev_port": dev_port, "type": kind}
        for file, value in values.items():
            self.write(f"{place}/{file}", str(value))
        if folder:
            self.link(f"{place}/device", folder)
        self.link(f"sys/class/net/{name}", place)
        return place

    def numa(self, *packages: int) -> None:
        """NUMA nodes of two CPUs each, with the package of each node."""
        for node, package in enumerate(packages):
            first = 2 * node
            self.write(f"sys/devices/system/node/node{node}/cpulist", f"{first}-{first + 1}")
            path = f"sys/devices/system/cpu/cpu{first}/topology/physical_package_id"
            self.write(path, str(package))

    def cpu(self, vendor: str, family: int, model: int) -> None:
        self.write(
            "proc/cpuinfo",
            f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
            "model name\t: a CPU\n",
        )

    def machine(self, xml: str) -> dict[str, GpuRecord]:
        """Write the machine of an NCCL file, with root ports and downstream ports added.

        Returns the driver's records of its GPUs.
        """
        cpus = read_records(xml, "machine", [])
        self.numa(*range(len(cpus)))
        first = cpus[0]
        # The kernel counts the extended family on top, NCCL writes it before the base family.
        family = first.family if first.family < 15 else 15 + ((first.family - 15) >> 4)
        self.cpu(first.vendor, family, first.model)
        taken = {pci.bus_id[:-5] for pci in _all(cpus)}
        spare = (bus for bus in (f"0000:{n:02x}" for n in range(256)) if bus not in taken)
        for number, cpu in enumerate(cpus):
            for top in cpu.pcis:
                bus = next(spare)
                way = [f"pci{bus}", f"{bus}:01.0"]
                self.device(way, numa_node=number, link=_link(top))
                self._below([*way, top.bus_id], top, number, spare)
        # NCCL lists interfaces without a PCI device once per CPU.
        for name, net in {net.name: net for cpu in cpus for net in cpu.nets}.items():
            self.interface(name, "", speed=str(net.speed_mbps))
        return {pci.bus_id: pci.gpu for pci in _all(cpus) if pci.gpu is not None}

    def _below(self, way: list[str], pci: PciRecord, numa_node: int, spare: Iterator[str]) -> None:
        def function(address: str) -> str:
            return self.device(
                [*way[:-1], address],
                pci_class=f"0x{pci.pci_class}",
                ids=(f"0x{pci.vendor}", f"0x{pci.device}"),
                numa_node=numa_node,
                link=_link(pci),
            )

        folder = function(pci.bus_id)
        for place, net in enumerate(pci.nets):
            if place:  # every port of a NIC is a function of its own; NCCL lists them as one device
                folder = function(f"{pci.bus_id[:-1]}{place}")
            self.rdma(net.name, folder, rate=f"{(net.speed_mbps or 0) // 1000} Gb/sec (4X HDR)")
        bus = next(spare) if pci.children else ""
        for place, child in enumerate(pci.children):
            port = f"{bus}:{place + 1:02x}.0"
            self.device([*way, port], numa_node=numa_node, link=_link(child))
            self._below([*way, port, child.bus_id], child, numa_node, spare)


def _link(pci: PciRecord) -> tuple[str, int]:
    return pci.link_speed, pci.link_width


def _all(cpus: Sequence[CpuRecord]) -> list[PciRecord]:
    found = [pci for cpu in cpus for pci in cpu.pcis]
    for pci in found:
        found += pci.children
    return found


@cache
def real_snapshot(name: str) -> PciInventory:
    """The inventory of a real machine's snapshot in the shared data."""
    data = (SHARED_DATA / f"pci_sysfs/hwloc_tar/{name}.tar.bz2").read_bytes()
    return read_sysfs(TarTree(data), name)
