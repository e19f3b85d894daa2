"""The command `tuccl bench`: tables against stock NCCL, in jobs of new processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.api.hosts.probe_options import Reach
from tuccl.cli.command import command
from tuccl.errors import ExitCode, NcclLibraryError, SeveralNcclsError, UsageError
from tuccl.options.option import (
    AS_JSON,
    DEFAULT_WORKSPACE,
    LABORATORY,
    MACHINE,
    MEASURING,
    SCOPE,
    TABLE_DIRECTORY,
    named_path,
    option,
)
from tuccl.options.run_options import IN_PLACE, SHARE_GPUS

if TYPE_CHECKING:
    from tuccl.api.bench import BenchRequest
    from tuccl.measuring.workers.laboratory import Laboratory
    from tuccl.shipping.bench.result import BenchResult
    from tuccl.shipping.bench.upgrade import Upgrade

ROUNDS = 5
"""Number of rounds if neither this nor a budget is given."""
_MOST_ROUNDS = 1000


@dataclass(frozen=True)
class BenchOptions:
    """The options of `tuccl bench`."""

    directory: Path = field(default=DEFAULT_WORKSPACE, metadata=TABLE_DIRECTORY)
    other: Path | None = option(
        "",
        "A second one, to compare with stock NCCL and with the first.",
        "OTHER",
        default=None,
        positional=True,
        parse=named_path,
    )
    operations: str | None = option(
        SCOPE, "As nccl-tests names them; the table's if not given.", "OP,...", default=None
    )
    sizes: str | None = option(
        SCOPE,
        "As 64K,1M,1G; if not given, all that the table was tuned for, with and without an entry.",
        "SIZE,...",
        default=None,
    )
    workload: Path | None = option(
        SCOPE,
        "The collectives of a job, as `tuccl workload` writes them: their keys are timed, and "
        "the gain of a step is reported.",
        "FILE.json",
        default=None,
        parse=named_path,
    )
    baseline: Path | None = option(
        MEASURING,
        "A tuner's CSV, as NCCL's example tuner or RCCL reads it, or a tuner's library, to compare "
        "with stock NCCL and with the table.",
        "FILE",
        default=None,
        parse=named_path,
    )
    rounds: int | None = option(
        MEASURING,
        f"Starts of each contender, in turn; {ROUNDS} if neither this nor a budget is given.",
        "N",
        default=None,
    )
    budget: str | None = option(
        MEASURING,
        "Machine time, as 90s, 10m: as many rounds as fit, two at least.",
        "TIME",
        default=None,
    )
    plain: bool | None = option(
        MEASURING,
        "Time calls one by one, or replay them from CUDA graphs; if not given, as the "
        "table was tuned, else graphs.",
        default=None,
        names=("--plain/--graphs",),
    )
    in_place: bool = field(default=False, metadata=IN_PLACE)
    in_windows: bool = option(
        MEASURING,
        "Time calls on registered buffers (ncclCommWindowRegister, NCCL 2.27), for which NCCL has "
        "other kernels.",
        default=False,
        names=("--registered",),
    )
    alone: bool = option(
        MEASURING,
        "Time calls alone, even if those of the table were not when it was tuned.",
        default=False,
    )
    no_executor: bool = option(
        MEASURING,
        "Load the plugin alone, even if the table loads the executor, too.",
        default=False,
    )
    nccl: Path | None = option(
        MEASURING,
        "A libnccl.so.2. If its release is not that of the one that is found, both are "
        "compared: what an upgrade changes.",
        "PATH",
        default=None,
    )
    gpus: int | None = option(
        MACHINE, "The first N GPUs of this host; else all.", "N", default=None
    )
    fake_nodes: str = option(
        LABORATORY,
        "Nodes that this host's GPUs appear as: their number, or their sizes, as 3+1.",
        "NODES",
        default="1",
    )
    share_gpus: bool = field(default=False, metadata=SHARE_GPUS)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl bench",
    "tuccl bench /shared/tuccl --operations all_reduce --sizes 64K,1M,16M --rounds 7",
    "tuccl bench /shared/tuccl /shared/tuccl-new --budget 10m",
    "tuccl bench /shared/tuccl --workload job.json",
    "tuccl bench /shared/tuccl --baseline /shared/nccl_tuner.conf",
    "tuccl bench /shared/tuccl --nccl /opt/nccl-2.29/lib/libnccl.so.2",
)
def bench(options: BenchOptions, reach: Reach) -> int:
    """Measure a table against stock NCCL here and now, in new processes as jobs have them.

    Exit code 1: a key is slower than stock NCCL, or than the table promised, beyond the noise.
    """
    from tuccl.api.bench import bench as measure
    from tuccl.search.trials.events import Listener
    from tuccl.shipping.bench.upgrade import UpgradeResult
    from tuccl.views.terminal.bench_display import print_bench, print_upgrade
    from tuccl.views.terminal.display import say
    from tuccl.views.terminal.json_output import print_document
    from tuccl.views.terminal.live_view import shown_progress

    def deliver(result: BenchResult | UpgradeResult) -> int:
        if options.as_json:
            print_document(result)
        elif isinstance(result, UpgradeResult):
            print_upgrade(result)
        else:
            print_bench(result)
        return ExitCode.FINDING if result.has_findings else ExitCode.OK

    return measure(request_of(options), Listener(say, shown_progress), deliver, reach)


def request_of(options: BenchOptions) -> BenchRequest:
    """Parse the options.

    Raises:
        UsageError: Options are impossible or contradict each other.
    """
    from tuccl.api.bench import BenchRequest
    from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
    from tuccl.quantities import parse_operations, parse_seconds, parse_size
    from tuccl.reports.ratios import LEAST_ROUNDS
    from tuccl.shipping.bench.baseline_table import BaselineFile
    from tuccl.shipping.bench.rounds import BenchLimits
    from tuccl.shipping.bench.surroundings import without_table
    from tuccl.workloads.workload_file import read_workload
    from tuccl.workspace.atomic_file import absolute

    if options.rounds is not None and options.rounds < LEAST_ROUNDS:
        raise UsageError(f"--rounds {options.rounds}: two at least, since one shows no noise")
    if options.gpus is not None and options.gpus < 1:
        raise UsageError(f"--gpus {options.gpus}: one at least")
    laboratory = _laboratory(options)
    budget_s = None if options.budget is None else parse_seconds(options.budget, "--budget")
    rounds = options.rounds or (ROUNDS if budget_s is None else _MOST_ROUNDS)
    named = [word.strip() for word in (options.sizes or "").split(",") if word.strip()]
    if options.sizes is not None and not named:
        raise UsageError("no size given: use for example --sizes 64K,1M,16M")
    if options.workload is not None and (options.sizes or options.operations):
        raise UsageError(
            "--workload names operations and sizes: leave out --operations and --sizes"
        )
    if options.baseline is not None and (options.other is not None or options.nccl is not None):
        raise UsageError(
            "--baseline compares a tuner's file with one table under one NCCL: leave out "
            + ("the second table" if options.other is not None else "--nccl")
        )
    environment = without_table(os.environ)
    upgrade = _upgrade(options, environment)
    if upgrade is None and options.nccl is not None:
        environment[LIBRARY_VARIABLE] = str(absolute(options.nccl))
    return BenchRequest(
        directories=tuple(filter(None, (options.directory, options.other))),
        operations=None if options.operations is None else parse_operations(options.operations),
        sizes_bytes=tuple(map(parse_size, named)) or None,
        workload=None if options.workload is None else read_workload(options.workload),
        plan=BenchLimits(rounds, budget_s),
        baseline=None if options.baseline is None else BaselineFile.read(options.baseline),
        environment=environment,
        laboratory=laboratory,
        upgrade=upgrade,
        gpus=options.gpus,
        with_executor=not options.no_executor,
        plain=options.plain,
        in_place=options.in_place,
        in_windows=options.in_windows,
        alone=options.alone,
    )


def _laboratory(options: BenchOptions) -> Laboratory:
    """Return the nodes that this host appears as.

    Raises:
        UsageError: They are no nodes, or one that shares GPUs and whose ranks are not given.
    """
    from tuccl.measuring.workers.congestion import congestion_control
    from tuccl.measuring.workers.laboratory import Laboratory, parse_node_sizes

    nodes, sizes = parse_node_sizes(options.fake_nodes)
    if options.share_gpus and nodes == 1 and options.gpus is None:
        raise UsageError(
            "--share-gpus says what GPUs faked nodes have: name two --fake-nodes or more, or with "
            "--gpus how many GPUs this host appears to have"
        )
    control = congestion_control() if nodes > 1 else ""
    return Laboratory(nodes, options.share_gpus, control, sizes)


def _upgrade(options: BenchOptions, environment: Mapping[str, str]) -> Upgrade | None:
    """Return the releases of an upgrade; None if `--nccl` names no other than the one found.

    Raises:
        UsageError: A second table is named beside another NCCL.
        NcclLibraryError: The NCCL cannot be loaded, is too old, or it is not clear which one jobs
            load today.
    """
    from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
    from tuccl.shipping.bench.upgrade import Upgrade
    from tuccl.workspace.atomic_file import absolute

    if options.nccl is None:
        return None
    new = find_nccl(str(absolute(options.nccl)), environment)
    try:
        old = find_nccl(None, environment)
    except SeveralNcclsError:
        raise
    except NcclLibraryError:
        return None  # There is no other.
    if old.version == new.version:
        return None
    if options.other is not None:
        raise UsageError(
            f"--nccl {options.nccl} is NCCL {new.version_text}, jobs here load {old.version_text}: "
            f"name one table to compare both, or {LIBRARY_VARIABLE}={options.nccl} "
            "to bench two tables under it"
        )
    return Upgrade(old, new)
