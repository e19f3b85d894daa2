"""The machine descriptions that TuCCL ships, in `probes/machines`."""

from __future__ import annotations

from pathlib import Path


def shipped_machines() -> dict[str, Path]:
    """Return the shipped files by name without suffix (`a100-8gpu-8nic`), sorted by name."""
    folder = Path(__file__).parents[1] / "machines"
    files = (path for path in folder.iterdir() if path.suffix in {".xml", ".json"})
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}
