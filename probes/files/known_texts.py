"""`identify_text`: the tool that wrote a text, recognized by lines that only this tool writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from probes.nvidia.topo_matrix import is_topo_matrix
from probes.pci.listings.lspci import HEADER, TREE_LINE


class TextKind(Enum):
    """Kind of a text, which determines its reader."""

    JSON = auto()
    XML = auto()
    """NCCL's XML, or XML of another tool, which the reader refuses by name."""
    HWLOC = auto()
    LSPCI = auto()
    TOPO_MATRIX = auto()
    OTHER = auto()
    """Output of a known tool that does not describe a machine."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class IdentifiedText:
    """The kind of a text, and for OTHER the reason for its refusal."""

    kind: TextKind
    refusal: str = ""


_HOST_FILE = "`lspci -vvv -nn -D`, a tar of /sys, or NCCL's topology dump"
_PORTS = f"it lists states of InfiniBand ports, not their PCIe positions; give {_HOST_FILE}"
_FIGURES = f"it holds measurements, not the devices between the ends; give {_HOST_FILE}"
_NETWORK = f"it describes the network, not a host; give {_HOST_FILE}"
_NVLINKS = f"it does not tell where a link leads; give `nvidia-smi topo -m` or {_HOST_FILE}"

_PERFTEST = "output of perftest (ib_write_bw, ib_write_lat)"
_P2P_TEST = "output of p2pBandwidthLatencyTest"
_STATUS = "output of `nvidia-smi nvlink --status`"

_OUTPUTS = (
    (r"== \S+/(board_id|fw_ver|hca_type|ports/\d+/\w+)", "values of /sys/class/infiniband", _PORTS),
    (r"CA '\S+'", "output of ibstat", _PORTS),
    (r"Infiniband device '\S+' port \d+ status:", "output of ibstatus", _PORTS),
    (r"hca_id:\s+\S+", "output of ibv_devinfo", _PORTS),
    (r"link \S+/\d+ (subnet_prefix|state) .*", "output of `rdma link`", _PORTS),
    (r"VM_hostname \S+", "a list of hosts and their InfiniBand ports", _NETWORK),
    (r"(switchguid|caguid)=0x.*", "output of ibnetdiscover", _NETWORK),
    (r"(RDMA_|Send|Atomic)\w*( Bidirectional)? (BW|Latency) Test", _PERFTEST, _FIGURES),
    (r"#bytes\s+#iterations\s.*", _PERFTEST, _FIGURES),
    (r"PING \S+ \(.*|.*icmp_seq=\d+ ttl=.*|--- \S+ ping stat.*", "output of ping", _NETWORK),
    (r"nvbandwidth Version.*|memcpy (CE|SM) .*|Running \w+\.", "output of nvbandwidth", _FIGURES),
    (r"\[P2P \(Peer-to-Peer.*|(Uni|Bi)directional P2P=.*", _P2P_TEST, _FIGURES),
    (r"Link \d+: ([\d.]+ GB/s|<inactive>)", _STATUS, _NVLINKS),
    (r"(cpu|gpu\d+)_to_(cpu|gpu\d+)_\w+ [\d.]+", "output of gpu_copy", _FIGURES),
    (r"(SwitchName|NodeName)=\S.*", "a configuration of Slurm", _NETWORK),
)
"""Pattern of a line that only this tool prints, description of the text, reason for refusal."""
_WHOLE_TEXTS = (
    (r"\d+,\d+(;\d+,\d+)*", "a list of pairs for a network benchmark", _NETWORK),
    (r"[A-Za-z][\w.-]*( +slots=\d+)?", "a list of hosts", _NETWORK),
)
"""As `_OUTPUTS`, for texts in which every line matches."""
_SNIFFED = 1 << 20
"""Characters examined; the beginning of a text identifies it."""

_PROLOGUE = re.compile(r"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>|\s+", re.S)
_HWLOC_ROOT = re.compile(r"<topology[\s>/]")


def identify_text(text: str) -> IdentifiedText:
    """Identify a text by its beginning; the readers check whether it is valid."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return IdentifiedText(TextKind.JSON)
    if start == "<":
        return IdentifiedText(TextKind.HWLOC if _is_hwloc(text) else TextKind.XML)
    beginning = text[:_SNIFFED]
    if is_topo_matrix(beginning):
        return IdentifiedText(TextKind.TOPO_MATRIX)
    if any(HEADER.fullmatch(line) or TREE_LINE.match(line) for line in beginning.splitlines()):
        return IdentifiedText(TextKind.LSPCI)
    refusal = _refusal([line.strip() for line in beginning.splitlines() if line.strip()])
    return IdentifiedText(TextKind.OTHER if refusal else TextKind.UNKNOWN, refusal)


def _refusal(lines: list[str]) -> str:
    for pattern, description, reason in _OUTPUTS:
        rule = re.compile(pattern)
        if any(rule.fullmatch(line) for line in lines):
            return f"this is {description}: {reason}"
    for pattern, description, reason in _WHOLE_TEXTS:
        rule = re.compile(pattern)
        if lines and all(rule.fullmatch(line) for line in lines):
            return f"this is {description}: {reason}"
    return ""


def _is_hwloc(text: str) -> bool:
    position = 0
    while (skipped := _PROLOGUE.match(text, position)) is not None:
        position = skipped.end()
    return _HWLOC_ROOT.match(text, position) is not None
