"""Schedule candidates for an operation: expert and synthesized, on every sketch, all verified.

More candidates than a search can try are made; kept are those that are fastest somewhere in the
model (for some size, protocol and channel count). What is kept is written as MSCCL XML with an
index, so a run that continues reads its schedules instead of synthesizing them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from synthesizer.synthesize import SynthesisOptions, synthesize

from sketches.sketch import Sketch
from synthesizer.algorithm import Algorithm
from synthesizer.collectives import Collective
from synthesizer.errors import DefectError, InfeasibleError
from synthesizer.experts import expert_algorithms
from synthesizer.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.simulator import CompiledSchedule, ExecutionModel, compile_schedule
from synthesizer.verifier import verify
from tuccl.atomic_file import write_atomically
from tuccl.errors import WorkspaceError
from tuccl.workspace import read_text_if_present

_INDEX_VERSION = 1
_MAX_KEPT = 6
_MODELS = tuple(
    ExecutionModel(
        launch_us=2.5,
        step_overhead_us=overhead_us,
        threadblock_gb_per_s=rate,
        wire_efficiency=efficiency,
        slot_bytes=512 << 10,
        instances=instances,
    )
    for overhead_us, rate, efficiency in ((0.45, 9.0, 0.40), (1.1, 22.0, 0.77))
    for instances in (1, 8)
)
"""A low-latency and a bandwidth protocol, with few channels and with many."""


@dataclass(frozen=True)
class Candidate:
    """A verified schedule with the sketch that it runs on."""

    algorithm: Algorithm
    sketch: Sketch
    origin: str
    """`expert`, or `synthesized for SIZE` with the solver's gap."""

    @property
    def content_hash(self) -> str:
        """Names the schedule in configurations and in the table."""
        return self.algorithm.content_hash()


def make_candidates(
    collective: Collective,
    sketches: Sequence[Sketch],
    sizes_bytes: Sequence[int],
    options: SynthesisOptions,
) -> tuple[Candidate, ...]:
    """Verified candidates that are fastest somewhere, in a fixed order.

    Raises:
        DefectError: when an expert algorithm of ours fails its proof.
        SolverError: when no solver works.
    """
    found: dict[str, Candidate] = {}
    for sketch in sketches:
        for candidate in _on_sketch(collective, sketch, sizes_bytes, options):
            verdict = verify(candidate.algorithm)
            if not verdict.proved:
                raise DefectError(f"{candidate.algorithm.name}: {verdict.describe()}")
            found.setdefault(candidate.content_hash, candidate)
    return _fastest_somewhere(list(found.values()), sizes_bytes)


def _on_sketch(
    collective: Collective,
    sketch: Sketch,
    sizes_bytes: Sequence[int],
    options: SynthesisOptions,
) -> Iterator[Candidate]:
    for algorithm in expert_algorithms(collective, sketch):
        yield Candidate(algorithm, sketch, f"expert on {sketch.name}")
    middle = sizes_bytes[len(sizes_bytes) // 2]
    for size_bytes in sorted({sizes_bytes[0], middle, sizes_bytes[-1]}):
        try:
            result = synthesize(collective, sketch, size_bytes, options)
        except InfeasibleError:
            continue
        how = result.fallback or f"solver gap {result.solver_gap:.1%}"
        origin = f"synthesized on {sketch.name} for {size_bytes} bytes, {how}"
        yield Candidate(result.algorithm, sketch, origin)


def _fastest_somewhere(
    candidates: Sequence[Candidate], sizes_bytes: Sequence[int]
) -> tuple[Candidate, ...]:
    """Those that win most often in the model, among those that win at all."""
    compiled: list[CompiledSchedule] = [compile_schedule(c.algorithm, c.sketch) for c in candidates]
    wins = [0] * len(candidates)
    for size_bytes in sizes_bytes:
        for model in _MODELS:
            times = [schedule.time_us(size_bytes, model) for schedule in compiled]
            if times:
                wins[times.index(min(times))] += 1
    order = sorted(range(len(candidates)), key=lambda i: (-wins[i], i))
    kept = sorted(i for i in order[:_MAX_KEPT] if wins[i])
    return tuple(candidates[i] for i in kept)


def save_candidates(directory: Path, candidates: Sequence[Candidate]) -> None:
    """Write the schedules, then the index that makes them count.

    Raises:
        WorkspaceError: when a file cannot be written.
    """
    rows = []
    for candidate in candidates:
        file = f"{candidate.content_hash}.xml"
        write_atomically(directory / file, write_msccl_xml(candidate.algorithm))
        rows.append(
            {
                "schedule": candidate.content_hash,
                "name": candidate.algorithm.name,
                "file": file,
                "sketch": candidate.sketch.name,
                "origin": candidate.origin,
            }
        )
    index = {"version": _INDEX_VERSION, "schedules": rows}
    write_atomically(directory / "index.json", json.dumps(index, indent=2) + "\n")


def load_candidates(directory: Path, sketches: Sequence[Sketch]) -> tuple[Candidate, ...] | None:
    """Candidates saved earlier; None where there is no index yet.

    Raises:
        WorkspaceError: when a file is damaged.
    """
    path = directory / "index.json"
    text = read_text_if_present(path)
    if text is None:
        return None
    by_name = {sketch.name: sketch for sketch in sketches}
    try:
        index = json.loads(text)
        if index["version"] != _INDEX_VERSION:
            raise WorkspaceError(f"{path} has version {index['version']}; move {directory} away")
        return tuple(_load_candidate(directory, row, by_name) for row in index["schedules"])
    except (ValueError, KeyError, TypeError) as error:
        raise WorkspaceError(f"{path} is damaged ({error}); move {directory} away") from error


def _load_candidate(directory: Path, row: dict[str, str], sketches: dict[str, Sketch]) -> Candidate:
    path = directory / row["file"]
    text = read_text_if_present(path)
    if text is None:
        raise WorkspaceError(f"{path} is missing; move {directory} away to synthesize again")
    algorithm = replace(read_msccl_xml(text, str(path)), name=row["name"])
    candidate = Candidate(algorithm, sketches[row["sketch"]], row["origin"])
    if candidate.content_hash != row["schedule"]:
        raise WorkspaceError(f"{path} was changed; move {directory} away to synthesize again")
    return candidate
