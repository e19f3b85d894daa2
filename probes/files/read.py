"""`read_topology`: a machine from a file in TuCCL's JSON or NCCL's XML."""

from __future__ import annotations

from pathlib import Path

from probes.inputs.xml_tree import MAX_BYTES
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.graph import Topology
from probes.topology.json_form import topology_from_json
from tuccl.errors import MachineError


def shipped_machines() -> dict[str, Path]:
    """Return the shipped files by name without suffix (`a100-8gpu-8nic`), sorted by name."""
    folder = Path(__file__).parents[1] / "machines"
    files = (path for path in folder.iterdir() if path.suffix in {".xml", ".json"})
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def read_topology(path: Path) -> Topology:
    """Read TuCCL's JSON or NCCL's XML, recognized by content.

    Not all rules of a topology are checked: see `probes.topology.validation.validate`.

    Raises:
        MachineError: the file cannot be read, or has neither form.
        InvalidTopologyError: the machine in an XML file cannot exist.
    """
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise MachineError(
                f"{path}: {path.stat().st_size:,} bytes; a topology has at most {MAX_BYTES:,}"
            )
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise MachineError(
            f"{path}: byte {error.start} is not UTF-8 text; give a topology in JSON or XML"
        ) from error
    except OSError as error:
        raise MachineError(
            f"{path}: cannot be read: {error.strerror or error}; give a readable file"
        ) from error
    start = text.lstrip()[:1]
    if start == "{":
        return topology_from_json(text, str(path))
    if start == "<":
        return parse_nccl_xml(text, str(path))
    raise MachineError(
        f"{path}: {'empty' if not start else 'neither JSON nor XML'}; give a topology in TuCCL's "
        "JSON form or an XML file that NCCL wrote (NCCL_TOPO_DUMP_FILE)"
    )
