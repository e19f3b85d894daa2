"""Schedule candidates for an operation: expert and synthesized, on every sketch, all verified.

More candidates than a search can try are made. For each size those stay that are near the fastest
in the model; the search for that size looks at no others. What stays is written as MSCCL XML with
an index, so a run that continues reads its schedules instead of synthesizing them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import Any

from programs.compiler import program_of
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.errors import DefectError, InfeasibleError
from synthesizer.experts import expert_algorithms
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.plan.reach import beyond_experts, beyond_search
from synthesizer.plan.synthesize import SynthesisOptions
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, compile_schedule
from tuccl.errors import WorkspaceError
from tuccl.processes.workers import IN_PROCESS, Workers
from tuccl.schedules.chunk_fit import misfits, synthesize_fitting, worth
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.runs import read_text_if_present

_INDEX = "index.json"
_INDEX_VERSION = 1
_NEAR = 1.25
"""A candidate up to that many times slower than the best in the model may win in truth."""
_MOST_PER_SIZE = 3
MADE_SHARE = 0.8
"""Share of the time that candidates take; the rest is the choice for each size."""
_LOW_LATENCY = ExecutionModel(
    launch_us=2.5, step_overhead_us=0.45, threadblock_gb_per_s=9.0, wire_efficiency=0.40
)
_BANDWIDTH = ExecutionModel(
    launch_us=2.5,
    step_overhead_us=1.1,
    threadblock_gb_per_s=22.0,
    wire_efficiency=0.77,
    slot_bytes=512 << 10,
    instances=8,
)
_SMALL_BYTES = 32 << 10
_LARGE_BYTES = 16 << 20
_WIRES_ALONE = ExecutionModel(slot_bytes=512 << 10)
"""No overheads: what is held against the bound."""

_Made = tuple[Algorithm, str]
"""A schedule and where it is from."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A size that a schedule is worth trying for, and how good it can be said to be there."""

    size_bytes: int
    simulated_us: float
    """On the wires alone, without overheads of protocol and executor."""
    bound_us: float
    """No schedule on this machine takes less."""

    @property
    def ratio(self) -> float:
        """Share of the bound that is reached, at most 1."""
        return self.bound_us / self.simulated_us


@dataclass(frozen=True)
class Candidate:
    """A verified schedule with the sketch that it runs on."""

    algorithm: Algorithm
    sketch: Sketch
    origin: str
    """Expert or synthesized, on which sketch, with the solver's gap."""
    promises: tuple[Promise, ...] = ()
    """Sizes that it is worth trying for."""
    own: bool = False
    """Whether the user wrote it."""

    @cached_property
    def content_hash(self) -> str:
        """Names the schedule in configurations and in the table."""
        return self.algorithm.content_hash()

    @cached_property
    def program(self) -> bytes:
        """What an executor runs; empty where none can run the schedule."""
        return program_of(self.algorithm)

    def promises_for(self, size_bytes: int) -> bool:
        """Whether it is worth trying for a size."""
        return any(promise.size_bytes == size_bytes for promise in self.promises)


def make_candidates(
    collective: Collective,
    sketches: Sequence[Sketch],
    machine: Sketch,
    sizes_bytes: Sequence[int],
    options: SynthesisOptions,
    progress: Callable[[int, float], None] = lambda _done, _share: None,
    workers: Workers = IN_PROCESS,
) -> tuple[Candidate, ...]:
    """Verified candidates that promise something for some size, in a fixed order.

    Args:
        collective: What to make schedules for.
        sketches: What they may use.
        machine: The whole machine, unpruned, which the bounds are of.
        sizes_bytes: The sizes to be tuned.
        options: Limits of the synthesis.
        progress: Told how many sketches are done, and roughly what part of all work that was.
        workers: Who makes them; they are the same however many there are.

    Raises:
        WorkerError: when a worker was killed.
        DefectError: when an expert algorithm of ours fails its proof.
        SolverError: when no solver works.
    """
    origins: list[Sketch] = []
    pieces: list[Callable[[], list[_Made]]] = []
    ends: list[int] = []
    for sketch in sketches:
        sizes = _sizes_to_synthesize(collective, sketch, sizes_bytes)
        if sizes:
            pieces.append(partial(_experts, collective, sketch))
            pieces += (partial(_synthesized, collective, sketch, size, options) for size in sizes)
        origins += [sketch] * (len(pieces) - len(origins))
        ends.append(len(pieces))
    found: dict[str, Candidate] = {}

    def told(done: int) -> None:
        made = done / len(pieces) if pieces else 1.0
        progress(sum(done >= end for end in ends), MADE_SHARE * made)

    made = workers.each(pieces, told)
    for sketch, schedules in zip(origins, made, strict=True):
        for algorithm, origin in schedules:
            candidate = Candidate(algorithm, sketch, origin)
            found.setdefault(candidate.content_hash, candidate)
    return _promising(collective, machine, list(found.values()), sizes_bytes)


def _sizes_to_synthesize(
    collective: Collective, sketch: Sketch, sizes_bytes: Sequence[int]
) -> list[int]:
    """The ends and the middle of the sizes; none when the sketch is worth trying for no size.

    One that is worth it for some is tried for all: what protocols and executor cost, which the
    sketch's ranges leave out, can shift them by more than an order of magnitude.
    """
    if not any(sketch.worth_trying(collective.value, size) for size in sizes_bytes):
        return []
    return sorted({sizes_bytes[0], sizes_bytes[len(sizes_bytes) // 2], sizes_bytes[-1]})


def _experts(collective: Collective, sketch: Sketch) -> list[_Made]:
    if beyond_experts(collective, sketch):
        return []
    origin = f"expert on {sketch.name}"
    return [(_proved(one), origin) for one in expert_algorithms(collective, sketch)]


def _synthesized(
    collective: Collective, sketch: Sketch, size_bytes: int, options: SynthesisOptions
) -> list[_Made]:
    if beyond_search(sketch):
        return []
    try:
        results = list(synthesize_fitting(collective, sketch, size_bytes, options))
    except InfeasibleError:
        return []
    made = []
    for result in results:
        how = result.fallback or f"solver gap {result.solver_gap:.1%}"
        origin = f"synthesized on {sketch.name} for {size_bytes} bytes, {how}"
        made.append((_proved(result.algorithm), origin))
    return made


def _proved(algorithm: Algorithm) -> Algorithm:
    verdict = verify(algorithm)
    if not verdict.proved:
        raise DefectError(f"{algorithm.name}: {verdict.describe()}")
    return algorithm


def _promising(
    collective: Collective,
    machine: Sketch,
    candidates: Sequence[Candidate],
    sizes_bytes: Sequence[int],
) -> tuple[Candidate, ...]:
    """The few that are near the fastest for a size, each with those sizes."""
    compiled = [compile_schedule(c.algorithm, c.sketch) for c in candidates]
    promises: list[list[Promise]] = [[] for _ in candidates]
    bound = time_bound(collective, machine)
    for size_bytes in sizes_bytes:
        worths = [worth(misfits(c.sketch, c.algorithm, size_bytes)) for c in candidates]
        slowdowns = _slowdowns(compiled, worths, size_bytes)
        order = sorted(range(len(candidates)), key=lambda i: (slowdowns[i], i))
        for i in order[:_MOST_PER_SIZE]:
            if slowdowns[i] <= _NEAR:
                simulated_us = compiled[i].time_us(size_bytes, _WIRES_ALONE)
                promises[i].append(Promise(size_bytes, simulated_us, bound.time_us(size_bytes)))
    return tuple(
        replace(candidate, promises=tuple(found))
        for candidate, found in zip(candidates, promises, strict=True)
        if found
    )


def promises_of(
    candidate: Candidate, bound: TimeBound, sizes_bytes: Sequence[int]
) -> tuple[Promise, ...]:
    """A promise for each of these sizes, for schedules that are to be tried in any case."""
    compiled = compile_schedule(candidate.algorithm, candidate.sketch)
    return tuple(
        Promise(size_bytes, compiled.time_us(size_bytes, _WIRES_ALONE), bound.time_us(size_bytes))
        for size_bytes in sizes_bytes
    )


def _slowdowns(
    compiled: Sequence[CompiledSchedule], worths: Sequence[float], size_bytes: int
) -> list[float]:
    """Each schedule's time over the fastest's, under the model that favours it most.

    Times count for more, by `worths`, where chunks do not fit the size.

    Small sizes are judged by a low-latency protocol, large ones by a bandwidth protocol with many
    channels, those between by both.
    """
    models = [_LOW_LATENCY] if size_bytes < _LARGE_BYTES else []
    models += [_BANDWIDTH] if size_bytes > _SMALL_BYTES else []
    slowdowns = [inf] * len(compiled)
    for model in models:
        times = [
            schedule.time_us(size_bytes, model) * factor
            for schedule, factor in zip(compiled, worths, strict=True)
        ]
        best = min(times, default=inf)
        slowdowns = [min(s, time / best) for s, time in zip(slowdowns, times, strict=True)]
    return slowdowns


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


def load_candidates(directory: Path, sketches: Sequence[Sketch]) -> tuple[Candidate, ...] | None:
    """Candidates saved earlier; None where there is no index yet.

    Raises:
        WorkspaceError: when a file is damaged.
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
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise WorkspaceError(f"{path} is damaged ({error}); move {directory} away") from error


def _load_candidate(directory: Path, row: dict[str, Any], sketches: dict[str, Sketch]) -> Candidate:
    path = directory / row["file"]
    text = read_text_if_present(path)
    if text is None:
        raise WorkspaceError(f"{path} is missing; move {directory} away to synthesize again")
    algorithm = replace(read_msccl_xml(text, str(path)), name=row["name"])
    promises = tuple(
        Promise(int(p["size_bytes"]), float(p["simulated_us"]), float(p["bound_us"]))
        for p in row["promises"]
    )
    candidate = Candidate(algorithm, sketches[row["sketch"]], row["origin"], promises)
    if candidate.content_hash != row["schedule"]:
        raise WorkspaceError(f"{path} was changed; move {directory} away to synthesize again")
    return candidate
