"""`read_topology`: a machine from a file of any known form, recognized by its content.

The forms: TuCCL's JSON, NCCL's XML, hwloc's XML, a tar of /sys, the output of lspci, the table of
`nvidia-smi topo -m`. Outputs of other known tools are refused by name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from probes.inputs.prefixes import without_prefixes
from probes.inputs.regular_file import regular_status
from probes.inputs.xml_tree import MAX_BYTES
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.nvidia.nvidia_smi_topo import topology_of_matrix
from probes.nvidia.topo_matrix import is_topo_matrix, parse_topo_matrix
from probes.pci.hwloc import hwloc_gpu_records, parse_hwloc_xml
from probes.pci.lspci import HEADER, TREE_LINE, parse_lspci
from probes.pci.records import host_topology
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import TarTree
from probes.topology.graph import LinkKind, Topology
from probes.topology.json_form import topology_from_json
from probes.topology.validation import check_structure
from tuccl.errors import MachineError, NotAFileError

_HOST_FILE = "`lspci -vvv -nn -D`, a tar of /sys, or NCCL's topology dump"
_PORTS = f"it lists states of InfiniBand ports, not their PCIe positions; give {_HOST_FILE}"
_FIGURES = f"it holds measurements, not the devices between the ends; give {_HOST_FILE}"
_NETWORK = f"it describes the network, not a host; give {_HOST_FILE}"
_NVLINKS = f"it does not say where a link leads; give `nvidia-smi topo -m` or {_HOST_FILE}"

_PERFTEST = "output of perftest (ib_write_bw, ib_write_lat)"
_P2P_TEST = "output of p2pBandwidthLatencyTest"
_STATUS = "output of `nvidia-smi nvlink --status`"

_Texts = tuple[tuple[str, str, str], ...]
_AMD = (
    "it shows neither PCIe positions nor speeds; give RCCL's topology dump (NCCL_TOPO_DUMP_FILE), "
    "`lspci -vvv -nn -D` or a tar of /sys"
)
_TABLES = (
    (
        r"=+ (ROCm System Management Interface|(Link Type|Hops|Weight) between two GPUs) =+",
        "output of `rocm-smi --showtopo`",
        _AMD,
    ),
    (
        r"(ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|CACHE COHERANCY|ATOMICS) TABLE:?",
        "output of `amd-smi topology`",
        _AMD,
    ),
    (
        r"GPU\d+\s+(X\s+)?(OK|CNS|GNS|TNS|NS|DR|U)(\s.*)?|OK\s+= Status Ok",
        "output of `nvidia-smi topo -p2p`",
        f"it says which GPUs may read each other; give `nvidia-smi topo -m` or {_HOST_FILE}",
    ),
)
"""As `_OUTPUTS`, for tables that look like those of `nvidia-smi topo -m` or lspci."""
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


def _refusal(lines: list[str], outputs: _Texts, whole_texts: _Texts = ()) -> str:
    """Reason for the refusal of a known tool's output; empty for an unknown text."""
    for texts, is_known in ((outputs, any), (whole_texts, all)):
        for pattern, description, reason in texts:
            rule = re.compile(pattern)
            if lines and is_known(rule.fullmatch(line) for line in lines):
                return f"this is {description}: {reason}"
    return ""


FORMS = (
    "a topology in TuCCL's JSON, an XML file that NCCL (NCCL_TOPO_DUMP_FILE) or lstopo wrote, a "
    "tar of /sys, the output of `lspci -vvv -nn -D` or of `nvidia-smi topo -m`"
)
_ARCHIVES = (b"BZh", b"\x1f\x8b", b"\xfd7zXZ\x00")
_TAR_MAGIC = slice(257, 262)


def shipped_machines() -> dict[str, Path]:
    """Return the shipped files by name without suffix (`a100-8gpu-8nic`), sorted by name."""
    folder = Path(__file__).parents[1] / "machines"
    files = (path for path in folder.iterdir() if path.suffix in {".xml", ".json"})
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def read_topology(path: Path) -> Topology:
    """Read a machine; the topology's notes state what the file leaves open.

    Raises:
        MachineError: the file cannot be read, or does not describe a machine; one line with the
            reason and what to give instead.
    """
    return machine_from_bytes(read_content(path), str(path))


def machine_from_bytes(content: bytes, source: str) -> Topology:
    """Read a machine from a file's content; `source` is its path, for messages and the name.

    Raises:
        MachineError: as `read_topology`.
    """
    name = PurePath(source).name.split(".", 1)[0] or "machine"
    if content.startswith(_ARCHIVES) or content[_TAR_MAGIC] == b"ustar":
        inventory = read_sysfs(TarTree(content, source), source)
        topology = host_topology(inventory, inventory.hostname or name)
    else:
        topology = _from_text(_text(content, source), source, name)
    check_structure(topology)
    notes = [note for note in _nvlink_notes(topology) if note not in topology.notes]
    return replace(topology, notes=(*topology.notes, *notes)) if notes else topology


def _nvlink_notes(topology: Topology) -> Iterator[str]:
    """Yield a sentence for each host on which a few GPUs have fewer NVLinks than all others."""
    lanes = Counter[str]()
    for link in topology.links:
        lanes[link.src] += link.lanes if link.kind is LinkKind.NVLINK else 0
    for node in sorted({gpu.node for gpu in topology.gpus}):
        of_gpu = {gpu.name: lanes[gpu.name] for gpu in topology.gpus if gpu.node == node}
        (usual, count), *_ = Counter(of_gpu.values()).most_common(1)
        fewer = {name: own for name, own in of_gpu.items() if own < usual}
        if fewer and 2 * count > len(of_gpu):
            has = ", ".join(f"{name} has {own or 'none'}" for name, own in fewer.items())
            yield (
                f"Of the GPUs of a host {count} have {usual} NVLinks, {has}: see "
                "`nvidia-smi nvlink --status` there if it should have as many."
            )


def read_content(path: Path) -> bytes:
    """Read a file of at most `MAX_BYTES`.

    Raises:
        MachineError: the file cannot be read, is too big, or is not a regular file.
    """
    try:
        status = regular_status(path)
        if status.st_size > MAX_BYTES:
            raise MachineError(
                f"{path}: {status.st_size:,} bytes; a machine's file has at most {MAX_BYTES:,}"
            )
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except NotAFileError as error:
        raise MachineError(f"{path}: {error.strerror}; give {FORMS}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MachineError(f"{path}: cannot be read: {reason}; give a readable file") from error


def _text(content: bytes, source: str) -> str:
    if not content.strip():
        raise MachineError(f"{source}: empty; give {FORMS}")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MachineError(f"{source}: UTF-16 text; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MachineError(
            f"{source}: byte {error.start} is not UTF-8 text; give {FORMS}"
        ) from error
    if "\0" in text:
        raise MachineError(f"{source}: has zero bytes, so it is not text; give {FORMS}")
    return text


def _from_text(text: str, source: str, name: str) -> Topology:
    text = without_prefixes(text)
    beginning = text[:_SNIFFED]
    lines = [line.strip() for line in beginning.splitlines() if line.strip()]
    if refusal := _refusal(lines, _TABLES):
        raise MachineError(f"{source}: {refusal}")
    for is_of_form, reader in _READERS:
        if is_of_form(beginning):
            return reader(text, source, name)
    refusal = _refusal(lines, _OUTPUTS, _WHOLE_TEXTS)
    raise MachineError(f"{source}: {refusal or f'does not describe a machine; give {FORMS}'}")


def _is_hwloc(text: str) -> bool:
    position = 0
    while (skipped := _PROLOGUE.match(text, position)) is not None:
        position = skipped.end()
    return _HWLOC_ROOT.match(text, position) is not None


def _from_hwloc(text: str, source: str, name: str) -> Topology:
    inventory = parse_hwloc_xml(text, source)
    gpus = hwloc_gpu_records(text, source)
    return host_topology(inventory, inventory.hostname or name, gpus)


def _from_json(text: str, source: str, _name: str) -> Topology:
    """Read TuCCL's form; JSON of a benchmark and a probe's report are refused by name."""
    document: object = None
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
    if isinstance(document, dict):
        _require_topology(document, source)
    return topology_from_json(text, source)


def _require_topology(document: dict[str, object], source: str) -> None:
    """Raise `MachineError` if a document is not a topology, of whichever version."""
    if "test_info" in document:
        raise MachineError(
            f"{source}: a measurement by perftest (ib_write_bw), which describes one path, not "
            f"a machine; give {FORMS}"
        )
    if {"topology", "odd_hosts", "gpu_pairs"} <= document.keys():
        raise MachineError(
            f"{source}: the report of `tuccl probe --json`; `tuccl probe -o FILE` writes a topology"
        )
    if not {"devices", "links"} & document.keys():
        raise MachineError(f"{source}: not a topology, which has devices and links; give {FORMS}")


_Reader = Callable[[str, str, str], Topology]
_READERS: tuple[tuple[Callable[[str], bool], _Reader], ...] = (
    (lambda text: text.lstrip()[:1] in ("{", "["), _from_json),
    (lambda text: text.lstrip()[:1] == "<" and _is_hwloc(text), _from_hwloc),
    # XML of another tool is refused by name.
    (lambda text: text.lstrip()[:1] == "<", lambda text, source, _: parse_nccl_xml(text, source)),
    (
        is_topo_matrix,
        lambda text, source, name: topology_of_matrix(parse_topo_matrix(text, source), name),
    ),
    (
        lambda text: any(HEADER.fullmatch(x) or TREE_LINE.match(x) for x in text.splitlines()),
        lambda text, source, name: host_topology(parse_lspci(text, source), name),
    ),
)
"""How the beginning of a text shows its form, and the form's reader of text, source and name."""
