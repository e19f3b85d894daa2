"""A directory of `tuccl ship` as scripts use it: in the environment of jobs, and what it states."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from measuring_job import JobError
from measuring_site import Site
from nccl_variants import Key, Variant, from_environment, step

from lookup_tables.bundles.bundle import Bundle, BundleEntry, load_bundle
from lookup_tables.errors import TableError
from lookup_tables.lookup import lookup
from lookup_tables.programs.program_layout import executor_serves
from lookup_tables.store import table_from_parquet_bytes
from lookup_tables.table import Entry, Operation, Shape
from tuccl.runtime import EXECUTOR_NAME


def table(site: Site, directory: Path, keys: Sequence[Key]) -> Variant:
    """A directory of `tuccl ship`, used as a job uses it; NCCL has to load plugin and table.

    Raises:
        JobError: There is no `tuccl.env`, or NCCL's log does not show the table.
        TableError: The bundle is damaged.
    """
    variables = shipped_variables(directory)
    log = site.folder / "table-log.%p"
    shown = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING", "NCCL_DEBUG_FILE": str(log)}
    site.run([step(keys[0], 1)], variables | shown, controlled=False)
    logs = [file.read_text(errors="replace") for file in site.folder.glob("table-log.*")]
    told = [line for text in logs for line in text.splitlines() if " entries for " in line]
    unused = f"NCCL does not use the table of {directory}; its log ends: " + (
        " | ".join("".join(logs).splitlines()[-3:])[-600:] or "(nothing of the plugin)"
    )
    if len(told) < site.ranks:
        raise JobError(unused)
    path = Path(variables["TUCCL_BUNDLE"])
    bundle = load_bundle(path)
    # One without any entry is a process profile at most, which needs none to be used.
    if bundle.entries and any("has no entries" in line for line in told):
        raise JobError(unused)
    kept = {name: value for name, value in variables.items() if name != "TUCCL_PROFILE"}
    shape = Shape(site.ranks, site.nodes, site.ranks // site.nodes)
    by_executor = EXECUTOR_NAME in variables.get("LD_PRELOAD", "") and executor_serves(shape)
    return replace(
        from_environment("table", kept, keys),
        entries=keys_with_entry(bundle, shape, keys),
        stated=stated_speedups(bundle, directory, shape, keys, by_executor=by_executor),
    )


def keys_with_entry(bundle: Bundle, shape: Shape, keys: Sequence[Key]) -> frozenset[Key]:
    """Keys with an entry, be it for the plugin or the executor; for all others NCCL chooses."""
    return frozenset(key for key in keys if bundle.lookup(Operation(key[0]), key[1], shape))


def stated_speedups(
    bundle: Bundle, directory: Path, shape: Shape, keys: Sequence[Key], *, by_executor: bool
) -> dict[Key, float]:
    """What the Parquet table beside a bundle states of keys that are tuned sizes.

    It is no part of what a job uses: where it is missing, cannot be read or is of another bundle,
    nothing is stated.

    Args:
        bundle: That is used.
        directory: Of `tuccl ship`.
        shape: Of the communicator.
        keys: That are asked about.
        by_executor: Schedules run; else what the table has instead of them.
    """
    file = directory / "table.parquet"
    if not file.is_file():
        return {}
    try:
        shipped = table_from_parquet_bytes(file.read_bytes(), str(file))
    except TableError as error:
        print(f"note: {error}", file=sys.stderr, flush=True)
        return {}
    stated: dict[Key, float] = {}
    for operation, size_bytes in keys:
        entry = lookup(shipped, Operation(operation), size_bytes, shape)
        used = bundle.lookup(Operation(operation), size_bytes, shape)
        if entry is None or entry.tuned_bytes != size_bytes or not _is_of(entry, used):
            continue
        time_us = entry.time_us if by_executor else entry.builtin_time_us
        if time_us and entry.default_time_us:
            stated[operation, size_bytes] = entry.default_time_us / time_us
    return stated


def _is_of(entry: Entry, used: BundleEntry | None) -> bool:
    """Whether a bundle's entry, whose times have 32 bits, was made of this one."""
    return (
        used is not None
        and (used.key, used.builtin, used.schedule) == (entry.key, entry.builtin, entry.schedule)
        and math.isclose(used.default_time_us, entry.default_time_us, rel_tol=1e-6)
    )


def shipped_variables(directory: Path) -> dict[str, str]:
    """What a job's environment gets from a directory of `tuccl ship`, wherever that lies now.

    Raises:
        JobError: There is no `tuccl.env`.
    """
    script = directory / "tuccl.env"
    if not script.is_file():
        raise JobError(f"{script} is missing; `tuccl ship` writes it")
    command = ["sh", "-c", '. "$1" && env -0', "sh", str(script.resolve())]
    bare = {"PATH": os.environ["PATH"], "TUCCL_DIR": str(directory.resolve())}
    done = subprocess.run(command, env=bare, capture_output=True, check=True)
    pairs = (pair.split("=", 1) for pair in done.stdout.decode().split("\0") if pair)
    wanted = ("NCCL_", "TUCCL_", "LD_PRELOAD")
    return {name: value for name, value in pairs if name.startswith(wanted) and name != "TUCCL_DIR"}
