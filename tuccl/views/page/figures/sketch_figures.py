"""Sketches of a run: the connections that each keeps, and those dropped and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sketches.errors import SketchError
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_from_json
from tuccl.errors import WorkspaceError
from tuccl.workspace.runs import Run, read_text_if_present


@dataclass(frozen=True, slots=True)
class Dropped:
    """Connections that were dropped at one stage for one reason."""

    stage: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class SketchFigures:
    """A sketch: its purpose, and what it keeps and drops."""

    name: str
    why: str
    kept: int
    dropped: tuple[Dropped, ...]


def read_sketches(run: Run) -> tuple[Sketch, ...]:
    """Read the sketches of a run, by name; none where it made no schedules.

    Raises:
        WorkspaceError: A file is damaged.
    """
    return tuple(_read_sketch(path) for path in sorted(run.sketches.glob("*.json")))


def _read_sketch(path: Path) -> Sketch:
    text = read_text_if_present(path)
    if text is None:
        raise WorkspaceError(f"{path} is missing; run `tuccl init` again")
    try:
        return sketch_from_json(text, str(path))
    except SketchError as error:
        raise WorkspaceError(f"{error}; run `tuccl init` again") from error


def sketch_figures(sketch: Sketch) -> SketchFigures:
    """Return what a sketch keeps and drops."""
    counts = Counter((edge.stage.value, edge.reason) for edge in sketch.dropped)
    examples = {
        (edge.stage.value, edge.reason): f"{edge.src} to {edge.dst}" for edge in sketch.dropped
    }
    dropped = (
        Dropped(stage, reason, count, examples[stage, reason])
        for (stage, reason), count in counts.most_common()
    )
    return SketchFigures(sketch.name, sketch.why, len(sketch.edges), tuple(dropped))
