"""Number and count the attempts of one part of `attack.py`, and keep the inputs of failures."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_MOST_KEPT = 200
"""Failures whose input is kept; further ones are only counted."""


class Findings:
    """Counts of attempts and outcomes, and a folder for each failure."""

    def __init__(self, part: str, seed: int, folder: Path) -> None:
        self.part = part
        self.seed = seed
        self.folder = folder
        self.counts: Counter[str] = Counter(attempts=0, failures=0)
        folder.mkdir(parents=True, exist_ok=True)

    def attempts(self, seconds: float, first: int = 0) -> Iterator[tuple[int, random.Random]]:
        """Yield a number and its random generator until the time is over, at least once."""
        end = time.monotonic() + seconds
        number = first
        while number == first or time.monotonic() < end:
            self.counts["attempts"] += 1
            yield number, random.Random(f"{self.part}/{self.seed}/{number}")  # noqa: S311
            number += 1

    def failed(self, number: int, why: str, *kept: Path) -> None:
        """Count and print a failure; copy files or folders into its folder."""
        self.counts["failures"] += 1
        name = f"{self.seed}/{self.part}/{number}"
        print(f"failure {name}: {why}", flush=True)
        if self.counts["failures"] > _MOST_KEPT:
            return
        place = self.folder / f"failure-{number}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "why.txt").write_text(f"{name}: {why}\n")
        for path in kept:
            if path.is_dir():
                shutil.copytree(path, place / path.name, symlinks=True, dirs_exist_ok=True)
            elif path.exists():
                shutil.copy2(path, place / path.name)
