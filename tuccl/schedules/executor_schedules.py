"""Schedules that TuCCL's executor can run, their kernels and their parameters.

The workers of the executor's backend get all programs at their start, in a bundle without entries,
and the choice of a program call by call. Schedules whose data flow has a kernel of its own are
tried at every size, since the model of interpreted schedules does not apply to them. Across hosts
the executor runs plans of phases (`tuccl.schedules.phased_candidates`), and schedules in stages and
rounds (`tuccl.schedules.staged_candidates`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import StoredSchedule, Table
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.experts import beyond_experts, expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.layout import Pattern, PhaseKind, pattern_in
from synthesizer.programs.phases import has_scratch_for
from tuccl.errors import NoProgramError
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PACKED_BUNDLE_VARIABLE
from tuccl.schedules.call_slices import slice_sizes, staged_slice_sizes
from tuccl.schedules.candidates import Candidate, promises_of
from tuccl.search.trials.presets import (
    executor_families,
    pattern_families,
    phased_families,
)
from tuccl.search.trials.space import Family, Space

_NOWHERE = "executor-workers"
_FILE = "programs.tuccl"
_NO_XML = ""
"""XML of the schedules, which workers do not read."""


def pattern_of_candidate(candidate: Candidate) -> Pattern | None:
    """Return a schedule's kernel, `Pattern.NONE` for the interpreter; None if it cannot run."""
    return pattern_in(candidate.program) if candidate.program else None


def why_not_run(algorithm: Algorithm) -> str | None:
    """Return why the executor cannot run a schedule; None if it can."""
    try:
        compile_program(algorithm)
    except NoProgramError as error:
        return f"TuCCL's executor cannot run it: {error}"
    return None


def with_kernels(
    operation: Collective,
    candidates: Sequence[Candidate],
    sketches: Iterable[Sketch],
    machine: Sketch,
    sizes_bytes: Sequence[int],
) -> tuple[Candidate, ...]:
    """Return candidates that the executor can run, with a schedule for each kernel at all sizes."""
    collective = operation
    interpreted, by_pattern = [], dict[Pattern, Candidate]()
    for candidate in candidates:
        pattern = pattern_of_candidate(candidate)
        if pattern is Pattern.NONE:
            interpreted.append(candidate)
        elif pattern is not None:
            by_pattern.setdefault(pattern, candidate)
    for sketch in sketches:
        if beyond_experts(collective, sketch):
            continue
        for algorithm in expert_algorithms(collective, sketch):
            candidate = Candidate(algorithm, sketch, f"expert on {sketch.name}")
            pattern = pattern_of_candidate(candidate)
            if pattern:
                by_pattern.setdefault(pattern, candidate)
    if not by_pattern:
        return tuple(interpreted)
    bound = time_bound(collective, machine)
    kernels = [
        replace(candidate, promises=promises_of(candidate, bound, sizes_bytes))
        for _, candidate in sorted(by_pattern.items())
    ]
    return (*kernels, *interpreted)


def executor_space(
    candidates: Sequence[Candidate], size_bytes: int, *, ll128: bool = True
) -> Space:
    """Return the space of schedules with the parameters of the executor's kernels.

    Args:
        candidates: The schedules.
        size_bytes: Size of the calls, by which the slices of schedules across hosts are chosen.
        ll128: Whether the links keep 128 bytes in order, which LL128 needs.
    """
    across: list[Family] = []
    kernels: list[str] = []
    interpreted: list[str] = []
    for candidate in candidates:
        content_hash, phased = candidate.content_hash, candidate.phased
        if phased is None:
            pattern = pattern_of_candidate(candidate)
            (kernels if pattern else interpreted).append(content_hash)
        elif phased.is_uniform:
            has_kernels = any(phase.kind is PhaseKind.LOCAL for phase in phased.calls)
            slices = slice_sizes(phased, size_bytes)
            across += phased_families(
                content_hash, size_bytes, slices, has_kernels=has_kernels, ll128=ll128
            )
        elif has_scratch_for(phased, size_bytes):
            slices = staged_slice_sizes(size_bytes, phased.lanes)
            across += phased_families(content_hash, size_bytes, slices, in_rounds=True, ll128=ll128)
    families = (
        *across,
        *pattern_families(kernels, ll128=ll128),
        *executor_families(interpreted, ll128=ll128),
    )
    return Space("executor", families)


def modelled_space(
    candidates: Sequence[Candidate], size_bytes: int, *, ll128: bool = True
) -> Space:
    """Return the space of schedules that are modelled: each takes the interpreter's parameters.

    Schedules across hosts take their own; arguments as in `executor_space`.
    """
    across = [each for each in candidates if each.is_across_hosts]
    hashes = [each.content_hash for each in candidates if each not in across]
    families = executor_space(across, size_bytes, ll128=ll128).families
    return Space("executor", (*families, *executor_families(hashes, ll128=ll128)))


@dataclass(frozen=True)
class ExecutorPrograms:
    """The programs of a run's workers."""

    content_hashes: frozenset[str]
    """Hashes of the schedules that can run."""
    bundle: bytes
    """Bundle of the programs; empty where no schedule can run."""

    def write(self, folder: Path) -> dict[str, str]:
        """Write the bundle to a folder; return the variables that name it to the executor."""
        path = folder / _FILE
        path.write_bytes(self.bundle)
        return {BUNDLE_VARIABLE: str(path) if self.bundle else "", "TUCCL_BUNDLE_CRC": ""}

    @property
    def packed(self) -> dict[str, str]:
        """Variables that hold the bundle itself, for workers on other hosts."""
        return {PACKED_BUNDLE_VARIABLE: b64encode(self.bundle).decode(), "TUCCL_BUNDLE_CRC": ""}


def executor_programs(schedules: Iterable[Candidate]) -> ExecutorPrograms:
    """Return the programs of all schedules that can run."""
    stored = [
        StoredSchedule(schedule.content_hash, schedule.name, _NO_XML, schedule.program)
        for schedule in schedules
        if schedule.program
    ]
    content_hashes = frozenset(schedule.content_hash for schedule in stored)
    return ExecutorPrograms(content_hashes, programs_bundle(stored) if stored else b"")


def programs_bundle(schedules: Iterable[StoredSchedule]) -> bytes:
    """Return a bundle without entries, for processes that choose a schedule for each call.

    On nodes of one GPU two plans may compile to the same program; the bundle has it once.
    """
    by_hash = {schedule.content_hash: schedule for schedule in schedules}
    stored = tuple(by_hash[content_hash] for content_hash in sorted(by_hash))
    return bundle_bytes(Table(_NOWHERE, _NOWHERE, (), (), {}, stored))
