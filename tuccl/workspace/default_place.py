"""The directory that holds the runs where no other is named; the help of commands shows it."""

from __future__ import annotations

from pathlib import Path

DEFAULT_WORKSPACE = Path("tuccl-workspace")
