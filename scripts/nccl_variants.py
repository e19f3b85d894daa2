"""What scripts/bench_nccl.py compares: stock NCCL, fixed environments, a table, all configurations.

A variant is one or several jobs of new processes; together they time every key once. Stock, fixed
environments and the table are timed exactly as a job runs them; only the exhaustive search forces
configurations through the plugin's control block. Stock is there twice: what the second one seems
to gain or lose is what the machine's noise does to any other variant.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from measuring_job import JobError, RunningJob
from measuring_site import Site
from measuring_turns import end_by_force, run_in_turns

from tuccl.tuning.sample_statistics import interquartile_mean

M = 1 << 20
STOCK = {"NCCL_TUNER_PLUGIN": "none"}
CONTROL = "stock again"
PROFILES: tuple[dict[str, str], ...] = (
    {},
    {"NCCL_MIN_NCHANNELS": "32"},
    {"NCCL_NTHREADS": "256"},
    {"NCCL_NTHREADS": "256", "NCCL_MIN_NCHANNELS": "32"},
    {"NCCL_NTHREADS": "128", "NCCL_MIN_NCHANNELS": "32"},
)
FIXED_CHOICES: tuple[dict[str, str], ...] = (
    {"NCCL_PROTO": "LL128"},
    {"NCCL_PROTO": "^LL"},
    {"NCCL_PROTO": "LL128", "NCCL_NTHREADS": "256", "NCCL_MIN_NCHANNELS": "32"},
    {"NCCL_ALGO": "Ring"},
)
FORCED = tuple(
    (algorithm, protocol)
    for algorithm, protocols in (
        ("ring", ("LL", "LL128", "Simple")),
        ("tree", ("LL", "LL128", "Simple")),
        ("nvls", ("Simple",)),
    )
    for protocol in protocols
)
CHANNELS = (1, 2, 4, 8, 16, 24, 32)

Key = tuple[str, int]


@dataclass(frozen=True)
class Part:
    """One job of a variant: keys, each with the configuration that is forced, if any is."""

    variables: Mapping[str, str]
    forced: Mapping[Key, Mapping[str, Any]]
    controlled: bool

    def steps(self, launches: int) -> list[dict[str, Any]]:
        """Of the job, one for each key."""
        return [step(key, launches) | dict(forced) for key, forced in self.forced.items()]


@dataclass(frozen=True)
class Variant:
    """Something that is compared."""

    name: str
    description: str
    parts: tuple[Part, ...]
    entries: frozenset[Key] = frozenset()
    """Keys that a table has an entry for."""
    stated: Mapping[Key, float] = field(default_factory=dict)
    """Speedups over stock that a table states."""

    def restricted_to(self, keys: Sequence[Key]) -> Variant:
        """The same for some of the keys."""
        parts = (
            replace(part, forced={key: part.forced[key] for key in keys if key in part.forced})
            for part in self.parts
        )
        return replace(
            self,
            parts=tuple(part for part in parts if part.forced),
            entries=self.entries & frozenset(keys),
        )

    def apart(self) -> Variant:
        """The same with a job for each operation, as nccl-tests runs them."""
        operations = dict.fromkeys(key[0] for part in self.parts for key in part.forced)
        return replace(
            self,
            parts=tuple(
                replace(part, forced=own)
                for part in self.parts
                for operation in operations
                if (own := {key: how for key, how in part.forced.items() if key[0] == operation})
            ),
        )

    def run(self, site: Site, launches: int) -> dict[Key, float]:
        """Interquartile mean time of each key in us, from new processes."""
        times: dict[Key, float] = {}
        for part in self.parts:
            result = site.run(part.steps(launches), part.variables, controlled=part.controlled)
            times |= self.times_of(list(part.forced), result.steps)
        return times

    def times_of(self, keys: Sequence[Key], found: Sequence[dict[str, Any]]) -> dict[Key, float]:
        """Interquartile mean time of each key in us, from a job's steps.

        Raises:
            JobError: One of them could not run.
        """
        times: dict[Key, float] = {}
        for key, one in zip(keys, found, strict=True):
            if "error" in one:
                raise JobError(f"{self.name}, {key[0]} of {key[1]} bytes: {one['error']}")
            times[key] = interquartile_mean(one["times_us"])
        return times


def run_side_by_side(
    site: Site, variants: Sequence[Variant], launches: int, passes: int
) -> dict[str, list[dict[Key, float]]]:
    """Times of each variant in us, pass by pass over all keys, at each of which they take turns.

    Args:
        site: Where all of them run.
        variants: Of the same jobs: as many parts, and in each the same keys.
        launches: Of a key in a pass.
        passes: Over all keys, from one start of the processes.

    Raises:
        JobError: A rank died or hung.
    """
    times: dict[str, list[dict[Key, float]]] = {
        variant.name: [{} for _ in range(passes)] for variant in variants
    }
    for parts in zip(*(variant.parts for variant in variants), strict=True):
        keys = list(parts[0].forced)
        jobs: list[RunningJob] = []
        try:
            for variant, part in zip(variants, parts, strict=True):
                steps = part.steps(launches) * passes
                controlled = part.controlled
                job = site.start(
                    steps, part.variables, controlled=controlled, turns_of=variant.name
                )
                jobs.append(job)
            results = run_in_turns(jobs, len(keys) * passes, len(keys))
        finally:
            end_by_force(jobs)  # Also those of which no further one could be started.
        for variant, result in zip(variants, results, strict=True):
            for number in range(passes):
                found = result.steps[number * len(keys) : (number + 1) * len(keys)]
                times[variant.name][number] |= variant.times_of(keys, found)
    return times


def step(key: Key, launches: int) -> dict[str, Any]:
    """A step of a job; large messages need fewer calls in a launch to be timed well."""
    operation, size_bytes = key
    calls = 20 if size_bytes <= M else 10 if size_bytes <= 16 * M else 4
    return {"operation": operation, "size_bytes": size_bytes, "calls": calls, "launches": launches}


def describe(variables: Mapping[str, str]) -> str:
    """`NCCL_NTHREADS=256 NCCL_PROTO=LL128`."""
    return " ".join(f"{name}={value}" for name, value in variables.items()) or "nothing set"


def from_environment(name: str, variables: Mapping[str, str], keys: Sequence[Key]) -> Variant:
    """A variant that consists of environment variables."""
    part = Part(variables, {key: {} for key in keys}, controlled=False)
    return Variant(name, describe(variables), (part,))


def stock(keys: Sequence[Key]) -> Variant:
    """NCCL with nothing set, and no plugin."""
    return from_environment("stock", STOCK, keys)


def control(keys: Sequence[Key]) -> Variant:
    """Stock a second time."""
    return from_environment(CONTROL, STOCK, keys)


def best_static(site: Site, keys: Sequence[Key], given: Sequence[str]) -> Variant:
    """The fixed environment with the least geometric mean of times, found in one run of each."""
    candidates = [dict(word.split("=", 1) for word in shlex.split(text)) for text in given]
    best: tuple[float, Mapping[str, str]] | None = None
    for variables in candidates or [*PROFILES[1:], *FIXED_CHOICES]:
        variant = from_environment("static", STOCK | variables, keys)
        try:
            mean_us = statistics.geometric_mean(variant.run(site, 3).values())
        except JobError as error:
            print(f"static {describe(variables)} cannot run: {str(error)[:200]}", flush=True)
            continue
        print(f"static {describe(variables)}: geometric mean {mean_us:.2f} us", flush=True)
        if best is None or mean_us < best[0]:
            best = (mean_us, variables)
    if best is None:
        raise JobError("no static environment could be run")
    return from_environment("static", STOCK | dict(best[1]), keys)


def exhaustive(site: Site, keys: Sequence[Key]) -> Variant:
    """For each key the fastest of all algorithms, protocols, channel counts and profiles."""
    best: dict[Key, tuple[float, int, dict[str, Any]]] = {}
    for number, profile in enumerate(PROFILES):
        steps = [step(key, 3) | configuration for key in keys for configuration in grid(*key)]
        result = site.run(steps, profile, controlled=True)
        for asked, found in zip(steps, result.steps, strict=True):
            if "error" in found:
                continue
            key = (asked["operation"], asked["size_bytes"])
            time_us = interquartile_mean(found["times_us"])
            if key not in best or time_us < best[key][0]:
                best[key] = (time_us, number, asked)
        print(f"exhaustive, {describe(profile)}: {result.seconds:.0f} s", flush=True)
    names = ("algorithm", "protocol", "nchannels")
    parts = tuple(
        Part(
            profile,
            {
                key: {name: asked[name] for name in names if name in asked}
                for key, (_, number, asked) in best.items()
                if number == own
            },
            controlled=True,
        )
        for own, profile in enumerate(PROFILES)
    )
    used = tuple(part for part in parts if part.forced)
    return Variant("exhaustive", f"best per key, under {len(used)} profiles", used)


def grid(operation: str, size_bytes: int) -> list[dict[str, Any]]:
    """Every forced configuration of a key, and NCCL's own choice.

    What is hopeless for large messages and takes seconds there is left out: few channels, and LL,
    which moves half of the bytes.
    """
    large = size_bytes > 16 * M
    return [{}] + [
        {"algorithm": algorithm, "protocol": protocol, "nchannels": nchannels}
        for algorithm, protocol in FORCED
        if (algorithm != "tree" or operation == "all_reduce") and not (large and protocol == "LL")
        for nchannels in CHANNELS
        if not (large and nchannels < 8)
    ]
