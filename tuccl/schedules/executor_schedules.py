"""What TuCCL's executor can run of the schedules of a run, how, and with which parameters.

The workers of the executor's backend are given all programs at their start, in a bundle of their
own, and are told call by call which of them to run. Schedules whose data flow has a kernel of its
own are tried at every size, whatever a model of interpreted schedules says of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.table import Operation, StoredSchedule, Table
from programs.compiler import compile_program, pattern_in, program_of
from programs.errors import NoProgramError
from programs.layout import Pattern
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.plan.reach import beyond_experts
from tuccl.engines.executor_library import BUNDLE_VARIABLE
from tuccl.schedules.candidates import Candidate, promises_of
from tuccl.trials.presets import executor_families, pattern_families
from tuccl.trials.space import Space

_NOWHERE = "executor-workers"
_FILE = "programs.tuccl"
_NO_XML = ""
"""Nobody reads the bundle but workers."""


def pattern_of_candidate(candidate: Candidate) -> Pattern | None:
    """The kernel that runs it, `Pattern.NONE` for the interpreter; None: it cannot be run."""
    return pattern_in(candidate.program) if candidate.program else None


def why_not_run(algorithm: Algorithm) -> str | None:
    """Why the executor cannot run a schedule; None: it can."""
    try:
        compile_program(algorithm)
    except NoProgramError as error:
        return f"TuCCL's executor cannot run it: {error}"
    return None


def with_kernels(
    operation: Operation,
    candidates: Sequence[Candidate],
    sketches: Iterable[Sketch],
    machine: Sketch,
    sizes_bytes: Sequence[int],
) -> tuple[Candidate, ...]:
    """The candidates that the executor can run, and for each kernel one schedule at every size."""
    collective = Collective(operation.value)
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
            made = Candidate(algorithm, sketch, f"expert on {sketch.name}")
            pattern = pattern_of_candidate(made)
            if pattern:
                by_pattern.setdefault(pattern, made)
    if not by_pattern:
        return tuple(interpreted)
    bound = time_bound(collective, machine)
    kernels = [
        replace(candidate, promises=promises_of(candidate, bound, sizes_bytes))
        for _, candidate in sorted(by_pattern.items())
    ]
    return (*kernels, *interpreted)


def executor_space(candidates: Sequence[Candidate], *, ll128: bool = True) -> Space:
    """Schedules with the executor's parameters: of its kernels, and of its interpreter.

    Args:
        candidates: The schedules.
        ll128: Whether the links keep 128 bytes in order, which LL128 needs.
    """
    kernels: list[str] = []
    interpreted: list[str] = []
    for candidate in candidates:
        pattern = pattern_of_candidate(candidate)
        (kernels if pattern else interpreted).append(candidate.content_hash)
    families = (
        *pattern_families(kernels, ll128=ll128),
        *executor_families(interpreted, ll128=ll128),
    )
    return Space("executor", families)


@dataclass(frozen=True)
class ExecutorPrograms:
    """What the workers of a run need to run its schedules."""

    content_hashes: frozenset[str]
    """Of those that can be run."""
    bundle: bytes
    """Empty where there is nothing to run."""

    def write(self, folder: Path) -> dict[str, str]:
        """Put the bundle into a folder; the variables that make the executor read it."""
        path = folder / _FILE
        path.write_bytes(self.bundle)
        return {BUNDLE_VARIABLE: str(path) if self.bundle else "", "TUCCL_BUNDLE_CRC": ""}


def executor_programs(schedules: Mapping[str, Algorithm]) -> ExecutorPrograms:
    """Compile all schedules that can be, each for communicators of its ranks on one node.

    Args:
        schedules: By content hash.
    """
    stored = []
    for content_hash, algorithm in schedules.items():
        if program := program_of(algorithm):
            stored.append(StoredSchedule(content_hash, algorithm.name, _NO_XML, program))
    content_hashes = frozenset(one.content_hash for one in stored)
    return ExecutorPrograms(content_hashes, programs_bundle(stored) if stored else b"")


def programs_bundle(schedules: Iterable[StoredSchedule]) -> bytes:
    """A bundle of schedules without an entry, for processes that choose call by call."""
    by_hash = sorted(schedules, key=lambda one: one.content_hash)
    return bundle_bytes(Table(_NOWHERE, _NOWHERE, (), (), {}, tuple(by_hash)))
