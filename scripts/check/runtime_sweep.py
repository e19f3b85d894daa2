"""Find the executor's best configuration at each size and write a bundle of these rules.

One job of new processes times NCCL's own choice and every configuration of a key one after the
other. A key gets a rule where the best one beats NCCL by more than the noise of such a short look.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernel_schedules import kernel_schedules
from measuring_job import JobError
from measuring_site import STOCK, Key, Site, step
from random_calls import Rule, rule_by

from tests.tuccl.lookup_tables.tables import make_entry, make_table
from tuccl.engines.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE
from tuccl.lookup_tables.bundles.bundle_writer import bundle_bytes
from tuccl.lookup_tables.table import Operation, Shape, StoredSchedule
from tuccl.schedules.executor_schedules import programs_bundle

K, M = 1 << 10, 1 << 20
WORTH = 0.99
"""Largest share of NCCL's time at which a configuration becomes a rule."""
BLOCKS = (1, 2, 4, 8, 16, 32, 64)
THREADS = (256, 512, 1024)
LARGEST_LL = 256 * K
LARGEST_ONE_PHASE = 512 * K


def executor_variables(library: Path, bundle: Path) -> dict[str, str]:
    """Variables with which a process runs NCCL behind the executor, by this bundle."""
    return {
        **STOCK,
        PRELOAD_VARIABLE: str(library.resolve()),
        BUNDLE_VARIABLE: str(bundle.resolve()),
    }


def grid(
    operation: str, size_bytes: int, kernels: Mapping[tuple[str, str], StoredSchedule]
) -> list[Rule]:
    """Configurations to time: blocks that grow with the size, all thread counts."""
    small = size_bytes <= LARGEST_ONE_PHASE
    patterns = ["direct"]
    if operation == "all_reduce":
        patterns = ["one_phase", "two_phase"] if small else ["two_phase"]
    protocols = ["LL", "LL128"] if size_bytes <= LARGEST_LL else ["LL128"]
    least = 1 if size_bytes <= 16 * K else 4 if size_bytes <= 256 * K else 16
    most = 16 if size_bytes <= 16 * K else 64
    return [
        rule_by(
            (operation, pattern),
            kernels[operation, pattern].content_hash,
            (size_bytes, size_bytes),
            protocol,
            (blocks, threads),
        )
        for pattern in patterns
        if (operation, pattern) in kernels
        for protocol in protocols
        for blocks in BLOCKS
        if least <= blocks <= most
        for threads in THREADS
    ]


def as_step(key: Key, rule: Rule, launches: int) -> dict[str, Any]:
    """A step of a job that forces the rule."""
    config = rule.choice.config
    return step(key, launches) | {
        "algorithm": "",
        "protocol": config.protocol.value,
        "nchannels": config.nchannels,
        "nthreads": config.nthreads,
        "buffer_bytes": config.buffer_bytes,
        "schedule": config.schedule,
    }


def sweep(
    site: Site,
    library: Path,
    keys: Sequence[Key],
    largest: int,
    settings: Mapping[str, str],
    launches: int = 3,
) -> tuple[list[Rule], list[dict[str, Any]]]:
    """Measure; return the best rule of each key that has one, and all times.

    Args:
        site: Where.
        library: The executor.
        keys: Operations and sizes.
        largest: Sizes above are left to NCCL.
        settings: Further variables of the processes.
        launches: Of each configuration.

    Raises:
        JobError: The executor cannot be measured, or serves nothing at all.
    """
    kernels = kernel_schedules(site.ranks)
    bundle = site.folder / "kernels.tuccl"
    bundle.write_bytes(programs_bundle(kernels.values()))
    tried: list[tuple[Key, Rule | None]] = []
    for key in keys:
        if key[1] <= largest:
            tried += [(key, None), *((key, rule) for rule in grid(*key, kernels))]
    steps = [as_step(key, rule, launches) if rule else step(key, launches) for key, rule in tried]
    result = site.run(steps, executor_variables(library, bundle) | dict(settings), controlled=False)
    found: list[dict[str, Any]] = []
    for (key, rule), outcome in zip(tried, result.steps, strict=True):
        time_us = statistics.median(outcome["times_us"]) if "times_us" in outcome else None
        found.append({"key": key, "rule": rule, "us": time_us, "error": outcome.get("error", "")})
    if not any(row["rule"] and row["us"] for row in found):
        raise JobError(f"the executor runs nothing: {found[-1]['error']}")
    print(f"sweep of {len(steps)} configurations: {result.seconds:.0f} s", flush=True)
    return best_rules(found), found


def best_rules(found: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """The fastest rule of each key that is faster than NCCL, with its size as upper limit."""
    nccl_us: dict[Key, float] = {}
    best: dict[Key, tuple[float, Rule]] = {}
    for row in found:
        key, rule, time_us = row["key"], row["rule"], row["us"]
        if time_us is None:
            continue
        if rule is None:
            nccl_us[key] = time_us
        elif key not in best or time_us < best[key][0]:
            best[key] = (time_us, rule)
    rules = [
        rule
        for key, (time_us, rule) in sorted(best.items())
        if key in nccl_us and time_us < WORTH * nccl_us[key]
    ]
    return with_ranges(rules)


def with_ranges(rules: Sequence[Rule]) -> list[Rule]:
    """Extend each rule down to the next smaller size, and join equal neighbours.

    A ladder goes in steps of 2; a size below the first rule of an operation is served by it too.
    """
    ranged: list[Rule] = []
    for rule in rules:
        last = ranged[-1] if ranged else None
        size_bytes = rule.choice.max_bytes
        if last is None or last.operation != rule.operation:
            ranged.append(_with_sizes(rule, 1, size_bytes))
            continue
        first_bytes, last_bytes = last.choice.min_bytes, last.choice.max_bytes
        begins = max(last_bytes, size_bytes // 2) + 1
        if rule.choice.config == last.choice.config and begins == last_bytes + 1:
            ranged[-1] = _with_sizes(last, first_bytes, size_bytes)
        else:
            ranged.append(_with_sizes(rule, begins, size_bytes))
    return ranged


def _with_sizes(rule: Rule, min_bytes: int, max_bytes: int) -> Rule:
    return replace(rule, choice=replace(rule.choice, min_bytes=min_bytes, max_bytes=max_bytes))


def write_rules(path: Path, rules: Sequence[Rule], ranks: int) -> None:
    """Write a bundle whose entries are these rules, for communicators of `ranks` ranks.

    Raises:
        JobError: Rules overlap.
    """
    for before, after in pairwise(rules):
        same = before.operation == after.operation
        if same and before.choice.max_bytes >= after.choice.min_bytes:
            raise JobError(f"rules overlap: {before.line} and {after.line}")
    shape = Shape(ranks, 1, ranks)
    entries = [
        make_entry(
            Operation(rule.operation),
            rule.choice.min_bytes,
            rule.choice.max_bytes,
            None,
            shape=shape,
            schedule=rule.choice.config,
        )
        for rule in rules
    ]
    used = {rule.choice.config.schedule for rule in rules}
    by_hash = {stored.content_hash: stored for stored in kernel_schedules(ranks).values()}
    schedules = tuple(by_hash[name] for name in sorted(by_hash) if name in used)
    table = make_table(entries, gpu_models=(), profile={}, schedules=schedules)
    path.write_bytes(bundle_bytes(table))
