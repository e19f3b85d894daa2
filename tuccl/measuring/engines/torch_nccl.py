"""Search for the NCCL that the torch of this Python would load, without importing torch.

In a CUDA build `torch/lib/libtorch_cuda.so` needs `libnccl.so.2`, which the loader takes from
LD_PRELOAD, the RPATH of torch's libraries (`nvidia/nccl/lib` in wheels), LD_LIBRARY_PATH, their
RUNPATH, or its cache, in this order. `ldd` reports the result. Where the loader finds none, torch
preloads the wheel's NCCL; where NCCL is built into torch, there is no library.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

LIBRARY_NAME = "libnccl.so.2"
_FOUND = re.compile(r"^\s*(?:libnccl\.so\.2 => )?(/.*/libnccl\.so\S*) \(0x", re.MULTILINE)
_NEEDED = re.compile(r"^\s*libnccl\.so\.2 => ", re.MULTILINE)
_ASKING_S = 20.0


def nccl_of_torch(environment: Mapping[str, str]) -> Path | None:
    """Return the NCCL that `import torch` would load; None without torch, or where it loads none.

    Args:
        environment: Environment of the importing process: LD_PRELOAD and LD_LIBRARY_PATH count.
    """
    for folder in package_folders("torch"):
        libraries = folder / "lib"
        cuda = libraries / "libtorch_cuda.so"
        if cuda.is_file():
            listed = _dependencies(cuda, environment)
            if listed and not _FOUND.search(listed) and not _NEEDED.search(listed):
                return None  # NCCL is built in.
            if found := _FOUND.search(listed):
                path = Path(found[1])  # With `..`, as the RPATH has it.
                return path.parent.resolve() / path.name
        elif (libraries / "libtorch_cpu.so").is_file():
            return None  # A build without CUDA.
        beside = [wheel / "lib" / LIBRARY_NAME for wheel in package_folders("nvidia.nccl")]
        usual = (*preloaded_nccls(environment), libraries / LIBRARY_NAME, *beside)
        return next((path for path in usual if path.is_file()), None)
    return None


def preloaded_nccls(environment: Mapping[str, str]) -> list[Path]:
    """Return the NCCLs in LD_PRELOAD, which the loader takes first."""
    names = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    return [Path(name) for name in names if Path(name).name.startswith("libnccl.so")]


def package_folders(name: str) -> list[Path]:
    """Return the folders of an installed package without importing it."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def _dependencies(library: Path, environment: Mapping[str, str]) -> str:
    """Return the output of `ldd` for a library; empty where `ldd` fails."""
    loader = {name: value for name, value in environment.items() if name.startswith("LD_")}
    others = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    try:
        asked = subprocess.run(  # noqa: S603  # fixed words
            ["ldd", str(library)],  # noqa: S607 - where the C library's tools are
            env={**others, **loader, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout if asked.returncode == 0 else ""
