"""A shipped directory whose bundle jobs can no longer load."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.shipping.shipped_directory import sourced_crc

LOST = ("missing", "truncated")


def lose_bundle(directory: Path, how: str) -> Path:
    """Delete or truncate the bundle that jobs load, as `LOST` names it; return its path."""
    bundle = directory / f"bundle-{sourced_crc(directory)}.tuccl"
    if how == "missing":
        bundle.unlink()
    else:
        os.truncate(bundle, 100)
    return bundle
