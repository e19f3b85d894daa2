"""Write the bill of materials of a wheel: CycloneDX 1.5, as JSON.

It lists the wheel with its sum, the packages that it needs, and each compiled file with what is
linked into it, as the file itself tells: NVIDIA's CUDA runtime, the GNU C++ library. Two runs write
the same.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

_ELF = b"\x7fELF"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*?)\s*(?:;\s*(.*))?")
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""Namespace of addresses, RFC 4122."""


@dataclass(frozen=True, slots=True)
class Linked:
    """Code of others that may be linked into a compiled file."""

    name: str
    mark: re.Pattern[bytes]
    """Stands in a file that has it."""
    version: re.Pattern[bytes]
    shared: bytes
    """Name of the shared library, which a file without that code names."""
    licence: dict[str, Any]
    address: str


LINKED = (
    Linked(
        name="NVIDIA CUDA Runtime (libcudart_static)",
        mark=re.compile(rb"libcudart_static_[0-9a-f]{16}"),
        version=re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)"),
        shared=b"libcudart.so",
        licence={
            "license": {
                "name": "NVIDIA CUDA Toolkit End User License Agreement",
                "url": "https://docs.nvidia.com/cuda/eula/index.html",
            }
        },
        address="https://developer.nvidia.com/cuda-toolkit",
    ),
    Linked(
        name="GNU C++ library (libstdc++)",
        mark=re.compile(rb"N10__cxxabiv1|St9exception"),
        version=re.compile(rb"GCC: \([^)\0]*\) ([\d.]+)"),
        shared=b"libstdc++.so",
        licence={"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"},
        address="https://gcc.gnu.org/onlinedocs/libstdc++/",
    ),
)


def sbom_of(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel.

    Raises:
        ValueError: The file is no wheel.
    """
    with ZipFile(wheel) as files:
        names = sorted(name for name in files.namelist() if not name.endswith("/"))
        metadata = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        if len(metadata) != 1:
            raise ValueError(f"{wheel} is no wheel: it has {len(metadata)} METADATA")
        described = Parser().parsestr(files.read(metadata[0]).decode())
        compiled = [
            component
            for name in names
            for content in [files.read(name)]
            if content.startswith(_ELF)
            for component in _compiled(name, content)
        ]
    digest = sha256(wheel.read_bytes()).hexdigest()
    own = _package(described, digest)
    needed = list(_needed(described))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {"component": own},
        "components": [*needed, *compiled],
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [each["bom-ref"] for each in (*needed, *compiled)]}
        ],
    }


def _package(described: Message, digest: str) -> dict[str, Any]:
    name, version = str(described["Name"]), str(described["Version"])
    return {
        "type": "application",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "purl": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "description": str(described["Summary"]),
        "licenses": [{"expression": str(described["License-Expression"])}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _needed(described: Message) -> Iterator[dict[str, Any]]:
    """Yield the packages that the wheel needs without extras; pip settles their versions."""
    for line in described.get_all("Requires-Dist", []):
        match = _REQUIREMENT.fullmatch(str(line))
        if match is None:
            raise ValueError(f"Requires-Dist: {line} cannot be read")
        name, versions, condition = match[1], match[2], match[3] or ""
        if "extra ==" in condition:
            continue
        yield {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "purl": f"pkg:pypi/{name}",
            "name": name,
            "scope": "required",
            "properties": [{"name": "tuccl:versions", "value": versions}],
        }


def _compiled(name: str, content: bytes) -> Iterator[dict[str, Any]]:
    linked = [found for each in LINKED if (found := _linked(each, name, content)) is not None]
    component: dict[str, Any] = {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": sha256(content).hexdigest()}],
    }
    if linked:
        component["components"] = linked
    yield component


def _linked(code: Linked, name: str, content: bytes) -> dict[str, Any] | None:
    if code.shared in content or code.mark.search(content) is None:
        return None
    version = code.version.search(content)
    component = {
        "type": "library",
        "bom-ref": f"file:{name}#{code.name}",
        "name": code.name,
        "licenses": [code.licence],
        "externalReferences": [{"type": "website", "url": code.address}],
    }
    return component if version is None else {**component, "version": version[1].decode()}


def main() -> int:
    """Write the bill of materials of the wheel that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="the wheel")
    parser.add_argument("-o", "--output", type=Path, help="a file; else standard output")
    given = parser.parse_args()
    try:
        text = json.dumps(sbom_of(given.wheel), indent=2) + "\n"
    except (OSError, ValueError) as error:
        sys.stderr.write(f"write_sbom.py: {error}\n")
        return 2
    if given.output is None:
        sys.stdout.write(text)
    else:
        given.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
