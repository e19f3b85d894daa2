"""Candidates of a run on disk: MSCCL XML with an index.

A run that continues reads its schedules instead of synthesizing them again. Those of a plan have no
file: the index has the plan's name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import PhasedSchedule
from tuccl.errors import NoProgramError, WorkspaceError
from tuccl.schedules.candidates import Candidate, Promise
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.runs import read_text_if_present

_INDEX = "index.json"
_INDEX_VERSION = 4


def save_candidates(directory: Path, candidates: Sequence[Candidate]) -> None:
    """Write the schedules, then the index that makes them valid.

    Raises:
        WorkspaceError: A file cannot be written.
    """
    rows = []
    for candidate in candidates:
        file = None
        if candidate.phases is None:
            file = f"{candidate.content_hash}.xml"
            write_atomically(directory / file, write_msccl_xml(candidate.steps))
        rows.append(
            {
                "schedule": candidate.content_hash,
                "name": candidate.name,
                "steps_name": candidate.schedule.name,
                "file": file,
                "sketch": candidate.sketch.name,
                "origin": candidate.origin,
                "plan": None if candidate.phases is None else _plan_row(candidate.phases),
                "node_sizes": list(candidate.node_sizes),
                "round_lanes": candidate.round_lanes,
                "promises": [
                    {**asdict(promise), "ratio": promise.ratio} for promise in candidate.promises
                ],
            }
        )
    index = {"version": _INDEX_VERSION, "schedules": rows}
    write_atomically(directory / _INDEX, json.dumps(index, indent=2) + "\n")


def are_saved(directory: Path) -> bool:
    """Whether candidates were saved there."""
    return (directory / _INDEX).is_file()


def saved_names(directory: Path) -> dict[str, str]:
    """Return the names of saved schedules by content hash, of all operations and shapes.

    Args:
        directory: Directory of schedules of a run.

    Raises:
        WorkspaceError: An index is damaged.
    """
    found: dict[str, str] = {}
    for path in sorted(directory.glob(f"**/{_INDEX}")):
        try:
            rows = json.loads(read_text_if_present(path) or "")["schedules"]
            found |= {str(row["schedule"]): str(row["name"]) for row in rows}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkspaceError(f"{path} is damaged ({error}); move it away") from error
    return found


def load_candidates(directory: Path, sketches: Sequence[Sketch]) -> tuple[Candidate, ...] | None:
    """Load the saved candidates; None if there is no index yet.

    Raises:
        WorkspaceError: A file is damaged.
    """
    path = directory / _INDEX
    text = read_text_if_present(path)
    if text is None:
        return None
    by_name = {sketch.name: sketch for sketch in sketches}
    try:
        index = json.loads(text)
        if index["version"] != _INDEX_VERSION:
            raise WorkspaceError(f"{path} has version {index['version']}; move {directory} away")
        return tuple(_load_candidate(directory, row, by_name) for row in index["schedules"])
    except (
        ValueError, KeyError, TypeError, OverflowError, RecursionError, NoProgramError
    ) as error:  # fmt: skip
        raise WorkspaceError(f"{path} is damaged ({error}); move {directory} away") from error


def _load_candidate(directory: Path, row: dict[str, Any], sketches: dict[str, Sketch]) -> Candidate:
    promises = tuple(
        Promise(int(p["size_bytes"]), float(p["simulated_us"]), float(p["bound_us"]))
        for p in row["promises"]
    )
    sketch, origin = sketches[row["sketch"]], row["origin"]
    if row["plan"]:
        candidate = Candidate(_plan(row["plan"]), sketch, origin, promises)
    else:
        path = directory / row["file"]
        text = read_text_if_present(path)
        if text is None:
            raise WorkspaceError(f"{path} is missing; move {directory} away to synthesize again")
        algorithm = replace(read_msccl_xml(text, str(path)), name=row["steps_name"])
        candidate = Candidate(
            *(algorithm, sketch, origin, promises),
            node_sizes=tuple(map(int, row["node_sizes"])),
            round_lanes=int(row["round_lanes"]),
        )
    if candidate.content_hash != row["schedule"]:
        changed = directory / (row["file"] or _INDEX)
        raise WorkspaceError(f"{changed} was changed; move {directory} away to synthesize again")
    return candidate


def _plan_row(phases: PhasedSchedule) -> dict[str, Any]:
    return {
        "collective": phases.collective.value,
        "name": phases.name,
        "nodes": phases.nodes,
        "local_ranks": phases.local_ranks,
    }


def _plan(row: dict[str, Any]) -> PhasedSchedule:
    return plan_by_name(
        Collective.named(row["collective"]),
        str(row["name"]),
        int(row["nodes"]),
        int(row["local_ranks"]),
    )
