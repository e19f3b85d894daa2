"""`meaning_of`: which tool wrote a text, by what only that tool writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from probes.nvidia.topo_matrix import is_topo_matrix
from probes.pci.listings.lspci import HEADER, TREE_LINE


class Meaning(Enum):
    """What a text is, as far as it decides who reads it."""

    JSON = auto()
    XML = auto()
    """XML that is not hwloc's: NCCL's, or refused by its reader by name."""
    HWLOC = auto()
    LSPCI = auto()
    TOPO_MATRIX = auto()
    OTHER = auto()
    """The output of a known tool that does not describe a machine."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """The meaning, and for OTHER why the text is refused."""

    meaning: Meaning
    refusal: str = ""


_HOST_FILE = "`lspci -vvv -nn -D`, a tar of /sys, or NCCL's topology dump"
_PORTS = f"states of InfiniBand ports, not where they sit; of the host give {_HOST_FILE}"
_FIGURES = f"measurements, which do not tell what lies between; of the host give {_HOST_FILE}"
_NETWORK = f"it is about the network, not about a host; of a host give {_HOST_FILE}"
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
"""A line that only this tool prints, what the text is, and why it is no machine."""
_WHOLE_TEXTS = (
    (r"\d+,\d+(;\d+,\d+)*", "a list of pairs for a network benchmark", _NETWORK),
    (r"[A-Za-z][\w.-]*( +slots=\d+)?", "a list of hosts", _NETWORK),
)
"""As above, of texts whose every line looks like this."""
_SNIFFED = 1 << 20
"""Letters looked at; what a text is shows at its beginning."""

_PROLOGUE = re.compile(r"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>|\s+", re.S)
_HWLOC_ROOT = re.compile(r"<topology[\s>/]")


def meaning_of(text: str) -> Found:
    """Tell what a text is; the readers decide whether it is sound."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return Found(Meaning.JSON)
    if start == "<":
        return Found(Meaning.HWLOC if _is_hwloc(text) else Meaning.XML)
    beginning = text[:_SNIFFED]
    if is_topo_matrix(beginning):
        return Found(Meaning.TOPO_MATRIX)
    if any(HEADER.fullmatch(line) or TREE_LINE.match(line) for line in beginning.splitlines()):
        return Found(Meaning.LSPCI)
    refusal = _refusal([line.strip() for line in beginning.splitlines() if line.strip()])
    return Found(Meaning.OTHER if refusal else Meaning.UNKNOWN, refusal)


def _refusal(lines: list[str]) -> str:
    for pattern, what, why in _OUTPUTS:
        rule = re.compile(pattern)
        if any(rule.fullmatch(line) for line in lines):
            return f"this is {what}: {why}"
    for pattern, what, why in _WHOLE_TEXTS:
        rule = re.compile(pattern)
        if lines and all(rule.fullmatch(line) for line in lines):
            return f"this is {what}: {why}"
    return ""


def _is_hwloc(text: str) -> bool:
    place = 0
    while (skipped := _PROLOGUE.match(text, place)) is not None:
        place = skipped.end()
    return _HWLOC_ROOT.match(text, place) is not None
