"""What joins each pair of GPUs, by look and by measurement, and whether the two agree.

By look a pair has the class of its route in the static topology, which promises a bandwidth. Copies
reach less than a link's nominal speed, by how much depends on the fabric: 386 to 394 of 450 GB/s
through the NVSwitches of an H200, 97 % over the direct links of a V100. The PCIe figures of NCCL
(`probes.topology.link_figures`) on the other hand leave a margin that copies exceed. A figure
within the range below therefore confirms the look, and one outside contradicts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probes.p2p.report import Figure
from probes.topology.graph import DeviceKind, LinkKind, Provenance, Topology
from probes.topology.link_figures import nvlink_gb_per_s, pcie_gb_per_s
from probes.topology.paths import Path, local_path

FABRIC_LEAST = 0.75
"""Of what NVLink, xGMI or C2C promise, reached by copies where nothing is wrong."""
PCIE_LEAST = 0.6
"""The same where PCIe and sockets are on the way."""
MOST = 1.25
"""Of any promise; more means that the look is wrong."""
_PCIE5_GB_PER_S = pcie_gb_per_s(240, 16)
_REACHED = 0.9
"""Of an NVLink's nominal speed: for counting links by a measurement."""


class PairClass(StrEnum):
    """What the way between two GPUs is made of."""

    NVLINK = "NVLink"
    XGMI = "xGMI"
    C2C = "C2C"
    NVSWITCH = "NVSwitch"
    PCIE_SWITCH = "PCIe switch"
    HOST_BRIDGE = "host bridge"
    SOCKETS = "sockets"
    PCIE = "PCIe"
    """By measurement: a speed does not tell which of the three above."""
    STAGED = "host memory"
    """By measurement: no access to each other's memory, copies go through the host's."""
    UNKNOWN = "no known way"


_DIRECT = {
    LinkKind.NVLINK: PairClass.NVLINK,
    LinkKind.XGMI: PairClass.XGMI,
    LinkKind.C2C: PairClass.C2C,
}
FABRICS = frozenset({*_DIRECT.values(), PairClass.NVSWITCH})


@dataclass(frozen=True, slots=True)
class Look:
    """What the static topology says of a directed pair."""

    kind: PairClass
    lanes: int = 0
    """Links of the fabric; 0 for PCIe."""
    promised_gb_per_s: float = 0.0
    pcie_gb_per_s: float = 0.0
    """What PCIe alone would do between the two; 0 when unknown."""
    nvlink_gb_per_s: float = 25.0
    """One NVLink of these GPUs."""

    @property
    def least_gb_per_s(self) -> float:
        """Below this a measurement contradicts the look."""
        share = FABRIC_LEAST if self.kind in FABRICS else PCIE_LEAST
        return share * self.promised_gb_per_s

    @property
    def most_gb_per_s(self) -> float:
        """Above this a measurement contradicts the look."""
        return MOST * self.promised_gb_per_s

    @property
    def promise(self) -> str:
        """`NVSwitch 18 links promise 450 GB/s`."""
        if not self.promised_gb_per_s:
            return self.kind
        what = f"{self.kind} {_counted(self.lanes)}" if self.lanes else self.kind
        verb = "promise" if self.lanes > 1 or self.kind is PairClass.SOCKETS else "promises"
        return f"{what} {verb} {self.promised_gb_per_s:.4g} GB/s"


@dataclass(frozen=True, slots=True)
class PairFinding:
    """One directed pair, by look and by measurement."""

    src: str
    dst: str
    look: PairClass
    promised_gb_per_s: float
    """0 when no way is known."""
    copy_engine: Figure | None
    measured: PairClass | None
    """None without a figure."""
    disagreement: str = ""
    """A sentence; empty when look and measurement agree, or nothing was measured."""


def look_at(topology: Topology, src: str, dst: str) -> Look:
    """Class and promise of a pair of GPUs by the topology."""
    one = nvlink_gb_per_s(topology.device[src].compute_capability)
    pcie = min(_pcie_gb_per_s(topology, src), _pcie_gb_per_s(topology, dst))
    path = local_path(topology, src, dst)
    if path is None:
        return Look(PairClass.UNKNOWN, 0, 0.0, pcie, one)
    kind = _class_of(topology, path)
    lanes = min(link.lanes for link in path.links) if kind in FABRICS else 0
    return Look(kind, lanes, path.bandwidth_gb_per_s, pcie, one)


def _class_of(topology: Topology, path: Path) -> PairClass:
    if len(path.links) == 1:
        return _DIRECT.get(path.links[0].kind, PairClass.PCIE)
    kinds = [topology.device[name].kind for name in path.devices[1:-1]]
    if DeviceKind.NVSWITCH in kinds:
        return PairClass.NVSWITCH
    cpus = kinds.count(DeviceKind.CPU)
    return (PairClass.PCIE_SWITCH, PairClass.HOST_BRIDGE, PairClass.SOCKETS)[min(cpus, 2)]


def _pcie_gb_per_s(topology: Topology, gpu: str) -> float:
    """Of a GPU's own link; one that is only assumed may be anything up to PCIe 5."""
    uplinks = [link for link in topology.links_from[gpu] if link.kind is LinkKind.PCIE]
    assumed = any(link.provenance is Provenance.ASSUMED for link in uplinks)
    stated = max((link.bandwidth_gb_per_s for link in uplinks), default=0.0)
    return max(stated, _PCIE5_GB_PER_S) if assumed else stated


def compare_pair(
    src: str, dst: str, look: Look, measured: Figure | None, *, peer_access: bool
) -> PairFinding:
    """Set a copy-engine figure against the look of its pair."""
    if measured is None:
        return PairFinding(src, dst, look.kind, look.promised_gb_per_s, None, None)
    speed = measured.median
    by_speed, reason = _by_measurement(look, speed, peer_access=peer_access)
    sentence = ""
    if not look.least_gb_per_s <= speed <= look.most_gb_per_s or (
        by_speed is PairClass.STAGED and look.kind in FABRICS
    ):
        sentence = f"{src} -> {dst}: {look.promise}, {speed:.4g} GB/s measured: {reason}."
    return PairFinding(
        src, dst, look.kind, look.promised_gb_per_s, measured, by_speed, disagreement=sentence
    )


def _by_measurement(look: Look, speed: float, *, peer_access: bool) -> tuple[PairClass, str]:
    """Class that a speed speaks for, and what to say where that is another than the look's."""
    if not peer_access:
        return PairClass.STAGED, (
            "the GPUs have no access to each other's memory, so copies go through the host's"
        )
    if look.kind in FABRICS:
        return _by_fabric_speed(look, speed)
    if speed > look.most_gb_per_s:
        if speed >= FABRIC_LEAST * look.nvlink_gb_per_s and speed > MOST * look.pcie_gb_per_s:
            return PairClass.NVLINK, (
                f"as over {_links(look, speed)} that were not seen; a file that NCCL wrote "
                "(NCCL_TOPO_DUMP_FILE) may know them"
            )
        return PairClass.PCIE, "the way is wider than it looks"
    if speed >= look.least_gb_per_s:
        return look.kind, ""
    return PairClass.PCIE, (
        "something on the way is slower than it looks, or sends the data round (ACS, IOMMU)"
    )


def _by_fabric_speed(look: Look, speed: float) -> tuple[PairClass, str]:
    if speed > look.most_gb_per_s:
        return look.kind, "there are more or faster links than were seen"
    if speed >= look.least_gb_per_s:
        return look.kind, ""
    if speed <= max(look.nvlink_gb_per_s / 2, MOST * look.pcie_gb_per_s):
        return PairClass.PCIE, "as over PCIe; are the links up (nvidia-smi nvlink --status)?"
    return look.kind, f"as over {_links(look, speed)}; is one down (nvidia-smi nvlink --status)?"


def _links(look: Look, speed: float) -> str:
    one = look.promised_gb_per_s / look.lanes if look.lanes else look.nvlink_gb_per_s
    return f"about {_counted(max(round(speed / (_REACHED * one)), 1))}"


def _counted(links: int) -> str:
    return f"{links} link{'s' * (links > 1)}"
