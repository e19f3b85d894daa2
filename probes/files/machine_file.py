"""`read_machine_file`: a machine from a file of any known form, recognized by its content.

The forms: TuCCL's JSON, NCCL's XML, hwloc's XML, a tar of /sys, the output of lspci, the table of
`nvidia-smi topo -m`. Outputs of other known tools are refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePath

from probes.errors import MachineFileError
from probes.files.known_texts import TextKind, identify_text
from probes.inputs.regular_file import NotAFileError, regular_status
from probes.inputs.xml_tree import MAX_BYTES
from probes.nccl_xml.parser import parse_nccl_xml
from probes.nvidia.nvidia_smi_topo import parse_topo_matrix, topology_of_matrix
from probes.pci.listings.hwloc_nvlinks import hwloc_gpu_records
from probes.pci.listings.hwloc_xml import parse_hwloc_xml
from probes.pci.listings.lspci import parse_lspci
from probes.pci.records import host_topology
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import TarTree
from probes.topology.graph import Topology
from probes.topology.json_form import topology_from_json
from probes.topology.validation import check_structure

FORMS = (
    "a topology in TuCCL's JSON, an XML file that NCCL (NCCL_TOPO_DUMP_FILE) or lstopo wrote, a "
    "tar of /sys, the output of `lspci -vvv -nn -D` or of `nvidia-smi topo -m`"
)
_ARCHIVES = (b"BZh", b"\x1f\x8b", b"\xfd7zXZ\x00")
_TAR_MAGIC = slice(257, 262)


def read_machine_file(path: Path) -> Topology:
    """Read a machine; the topology's notes state what the file leaves open.

    Raises:
        ProbeError: the file cannot be read, or does not describe a machine; one line with the
            reason and what to give instead.
    """
    return machine_from_bytes(_content(path), str(path))


def machine_from_bytes(content: bytes, source: str) -> Topology:
    """Read a machine from a file's content; `source` is its path, for messages and the name.

    Raises:
        ProbeError: as `read_machine_file`.
    """
    name = PurePath(source).name.split(".", 1)[0] or "machine"
    if content.startswith(_ARCHIVES) or content[_TAR_MAGIC] == b"ustar":
        inventory = read_sysfs(TarTree(content, source), source)
        topology = host_topology(inventory, inventory.hostname or name)
    else:
        topology = _from_text(_text(content, source), source, name)
    check_structure(topology)
    return topology


def _content(path: Path) -> bytes:
    try:
        status = regular_status(path)
        if status.st_size > MAX_BYTES:
            raise MachineFileError(
                f"{path}: {status.st_size:,} bytes; a machine's file has at most {MAX_BYTES:,}"
            )
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except NotAFileError as error:
        raise MachineFileError(f"{path}: {error.strerror}; give {FORMS}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MachineFileError(f"{path}: cannot be read: {reason}; give a readable file") from error


def _text(content: bytes, source: str) -> str:
    if not content.strip():
        raise MachineFileError(f"{source}: empty; give {FORMS}")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MachineFileError(f"{source}: UTF-16 text; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MachineFileError(
            f"{source}: byte {error.start} is not UTF-8 text; give {FORMS}"
        ) from error
    if "\0" in text:
        raise MachineFileError(f"{source}: has zero bytes, so it is not text; give {FORMS}")
    return text


def _from_text(text: str, source: str, name: str) -> Topology:
    identified = identify_text(text)
    match identified.kind:
        case TextKind.JSON:
            _refuse_other_json(text, source)
            return topology_from_json(text, source)
        case TextKind.XML:
            return parse_nccl_xml(text, source)
        case TextKind.HWLOC:
            inventory = parse_hwloc_xml(text, source)
            gpus = hwloc_gpu_records(text, source)
            return host_topology(inventory, inventory.hostname or name, gpus)
        case TextKind.LSPCI:
            return host_topology(parse_lspci(text, source), name)
        case TextKind.TOPO_MATRIX:
            return topology_of_matrix(parse_topo_matrix(text, source), name)
        case TextKind.OTHER:
            raise MachineFileError(f"{source}: {identified.refusal}")
    raise MachineFileError(f"{source}: does not describe a machine; give {FORMS}")


def _refuse_other_json(text: str, source: str) -> None:
    """Refuse JSON of a benchmark; the topology's reader refuses a text that is not JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict) and "test_info" in document:
        raise MachineFileError(
            f"{source}: a measurement by perftest (ib_write_bw), which describes one path, not a "
            f"machine; give {FORMS}"
        )
