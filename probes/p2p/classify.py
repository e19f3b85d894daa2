"""The expected and the measured class of each pair of GPUs, and their disagreements.

The expected class is that of the pair's path in the static topology, which has a nominal bandwidth.
Copies reach less than a link's nominal bandwidth, depending on the fabric: 386 to 394 of 450 GB/s
through the NVSwitches of an H200, 97 % over the direct links of a V100. The PCIe figures of NCCL
(`probes.topology.bandwidth_class`), however, leave a margin that copies exceed. A figure inside
the range below therefore confirms the expected class, and a figure outside contradicts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probes.p2p.report import Figure
from probes.topology.bandwidth_class import nvlink_gb_per_s, pcie_gb_per_s
from probes.topology.graph import DeviceKind, LinkKind, Provenance, Topology
from probes.topology.paths import Path, local_path

FABRIC_LEAST = 0.75
"""Least share of the nominal bandwidth of NVLink, xGMI or C2C that copies reach."""
PCIE_LEAST = 0.6
"""Least share of the nominal bandwidth of PCIe and sockets that copies reach."""
MOST = 1.25
"""Largest share of any nominal bandwidth that copies reach."""
_PCIE5_GB_PER_S = pcie_gb_per_s(240, 16)
_REACHED = 0.9
"""Usual share of an NVLink's nominal bandwidth, to estimate the number of links."""


class PairClass(StrEnum):
    """Class of the path between two GPUs."""

    NVLINK = "NVLink"
    XGMI = "xGMI"
    C2C = "C2C"
    NVSWITCH = "NVSwitch"
    PCIE_SWITCH = "PCIe switch"
    HOST_BRIDGE = "host bridge"
    SOCKETS = "sockets"
    PCIE = "PCIe"
    """Measured class: any of the three above, as the bandwidth does not distinguish them."""
    STAGED = "host memory"
    """Measured class: without peer access, copies go through the host's memory."""
    UNKNOWN = "no known way"


_DIRECT = {
    LinkKind.NVLINK: PairClass.NVLINK,
    LinkKind.XGMI: PairClass.XGMI,
    LinkKind.C2C: PairClass.C2C,
}
FABRICS = frozenset({*_DIRECT.values(), PairClass.NVSWITCH})


@dataclass(frozen=True, slots=True)
class ExpectedPair:
    """A directed pair of GPUs in the static topology."""

    kind: PairClass
    lanes: int = 0
    """Number of links of the fabric; 0 for PCIe."""
    promised_gb_per_s: float = 0.0
    pcie_gb_per_s: float = 0.0
    """Bandwidth by PCIe alone; 0 when unknown."""
    nvlink_gb_per_s: float = 25.0
    """Bandwidth of one NVLink of these GPUs."""

    @property
    def least_gb_per_s(self) -> float:
        """Bandwidth below which a measurement contradicts the expected class."""
        share = FABRIC_LEAST if self.kind in FABRICS else PCIE_LEAST
        return share * self.promised_gb_per_s

    @property
    def most_gb_per_s(self) -> float:
        """Bandwidth above which a measurement contradicts the expected class."""
        return MOST * self.promised_gb_per_s

    @property
    def promise(self) -> str:
        """Describe the nominal bandwidth: `NVSwitch 18 links promise 450 GB/s`."""
        if not self.promised_gb_per_s:
            return self.kind
        subject = f"{self.kind} {_counted(self.lanes)}" if self.lanes else self.kind
        verb = "promise" if self.lanes > 1 or self.kind is PairClass.SOCKETS else "promises"
        return f"{subject} {verb} {self.promised_gb_per_s:.4g} GB/s"


@dataclass(frozen=True, slots=True)
class PairFinding:
    """The expected and the measured class of a directed pair."""

    src: str
    dst: str
    expected: PairClass
    promised_gb_per_s: float
    """Nominal bandwidth of the path; 0 when no path is known."""
    copy_engine: Figure | None
    measured: PairClass | None
    """Measured class; None without a figure."""
    disagreement: str = ""
    """A sentence; empty when the classes agree, or nothing was measured."""


def expected_pair(topology: Topology, src: str, dst: str) -> ExpectedPair:
    """Return the class and nominal bandwidth of a pair of GPUs in the topology."""
    nvlink = nvlink_gb_per_s(topology.device[src].compute_capability)
    pcie = min(_pcie_gb_per_s(topology, src), _pcie_gb_per_s(topology, dst))
    path = local_path(topology, src, dst)
    if path is None:
        return ExpectedPair(PairClass.UNKNOWN, 0, 0.0, pcie, nvlink)
    kind = _class_of(topology, path)
    lanes = min(link.lanes for link in path.links) if kind in FABRICS else 0
    return ExpectedPair(kind, lanes, path.bandwidth_gb_per_s, pcie, nvlink)


def _class_of(topology: Topology, path: Path) -> PairClass:
    if len(path.links) == 1:
        return _DIRECT.get(path.links[0].kind, PairClass.PCIE)
    kinds = [topology.device[name].kind for name in path.devices[1:-1]]
    if DeviceKind.NVSWITCH in kinds:
        return PairClass.NVSWITCH
    cpus = kinds.count(DeviceKind.CPU)
    return (PairClass.PCIE_SWITCH, PairClass.HOST_BRIDGE, PairClass.SOCKETS)[min(cpus, 2)]


def _pcie_gb_per_s(topology: Topology, gpu: str) -> float:
    """Bandwidth of a GPU's own PCIe link; an assumed link may be anything up to PCIe 5."""
    uplinks = [link for link in topology.links_from[gpu] if link.kind is LinkKind.PCIE]
    assumed = any(link.provenance is Provenance.ASSUMED for link in uplinks)
    stated = max((link.bandwidth_gb_per_s for link in uplinks), default=0.0)
    return max(stated, _PCIE5_GB_PER_S) if assumed else stated


def compare_pair(
    src: str, dst: str, expected: ExpectedPair, measured: Figure | None, *, peer_access: bool
) -> PairFinding:
    """Compare a copy-engine figure with the expected class of its pair."""
    if measured is None:
        return PairFinding(src, dst, expected.kind, expected.promised_gb_per_s, None, None)
    speed = measured.median
    by_speed, reason = _by_measurement(expected, speed, peer_access=peer_access)
    sentence = ""
    if not expected.least_gb_per_s <= speed <= expected.most_gb_per_s or (
        by_speed is PairClass.STAGED and expected.kind in FABRICS
    ):
        sentence = f"{src} -> {dst}: {expected.promise}, {speed:.4g} GB/s measured: {reason}."
    return PairFinding(
        src,
        dst,
        expected.kind,
        expected.promised_gb_per_s,
        measured,
        by_speed,
        disagreement=sentence,
    )


def _by_measurement(
    expected: ExpectedPair, speed: float, *, peer_access: bool
) -> tuple[PairClass, str]:
    """Return the class that a bandwidth indicates, and the explanation of a disagreement."""
    if not peer_access:
        return PairClass.STAGED, (
            "the GPUs have no access to each other's memory, so copies go through the host's"
        )
    if expected.kind in FABRICS:
        return _by_fabric_speed(expected, speed)
    if speed > expected.most_gb_per_s:
        if (
            speed >= FABRIC_LEAST * expected.nvlink_gb_per_s
            and speed > MOST * expected.pcie_gb_per_s
        ):
            return PairClass.NVLINK, (
                f"as over {_links(expected, speed)} that were not seen; a file that NCCL wrote "
                "(NCCL_TOPO_DUMP_FILE) may know them"
            )
        return PairClass.PCIE, "the path is wider than the topology shows"
    if speed >= expected.least_gb_per_s:
        return expected.kind, ""
    return PairClass.PCIE, (
        "a device on the path is slower than the topology shows, or reroutes the data (ACS, IOMMU)"
    )


def _by_fabric_speed(expected: ExpectedPair, speed: float) -> tuple[PairClass, str]:
    if speed > expected.most_gb_per_s:
        return expected.kind, "there are more or faster links than were seen"
    if speed >= expected.least_gb_per_s:
        return expected.kind, ""
    if speed <= max(expected.nvlink_gb_per_s / 2, MOST * expected.pcie_gb_per_s):
        return PairClass.PCIE, "as over PCIe; are the links up (nvidia-smi nvlink --status)?"
    return (
        expected.kind,
        f"as over {_links(expected, speed)}; is one down (nvidia-smi nvlink --status)?",
    )


def _links(expected: ExpectedPair, speed: float) -> str:
    per_link = (
        expected.promised_gb_per_s / expected.lanes if expected.lanes else expected.nvlink_gb_per_s
    )
    return f"about {_counted(max(round(speed / (_REACHED * per_link)), 1))}"


def _counted(links: int) -> str:
    return f"{links} link{'s' * (links > 1)}"
