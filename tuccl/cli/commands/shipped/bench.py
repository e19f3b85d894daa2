"""The command `tuccl bench`: tables against stock NCCL, in jobs of new processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.table import Operation
from probes.cluster.mpi import mpi_tasks
from tuccl.api.hosts.settled_nccl import look_on_all_ranks, nccl_of_host, tell_nccl
from tuccl.cli.options.bench_command import BenchCommand
from tuccl.errors import ExitCode, NcclLibraryError, SeveralNcclsError, UsageError, exit_code_of
from tuccl.measuring.engines.gpu_sharing import require_mps, sharing_variables
from tuccl.measuring.engines.nccl_environment import check_environment, count_gpus
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.measuring.workers.congestion import congestion_control
from tuccl.measuring.workers.laboratory import Laboratory, parse_node_sizes
from tuccl.measuring.workers.mpi_places import run_measuring_ranks
from tuccl.measuring.workers.places import LocalPlaces, Places
from tuccl.measuring.workers.seating import whole_shape
from tuccl.processes.mpi_workers import ending_job_when_terminated
from tuccl.quantities import count_of, format_about, parse_operations, parse_seconds, parse_size
from tuccl.search.trials.timing import Computation, Timing
from tuccl.shipping.bench.contenders import STOCK, Contender, ShippedTable
from tuccl.shipping.bench.job import Site, divisions_of
from tuccl.shipping.bench.placed_calls import untimed_note
from tuccl.shipping.bench.places import (
    FoundTable,
    found_tables,
    keys_of,
    require_entries,
)
from tuccl.shipping.bench.ratios import LEAST_ROUNDS
from tuccl.shipping.bench.result import bench_result
from tuccl.shipping.bench.rounds import Bench, Plan
from tuccl.shipping.bench.step import benched_calls
from tuccl.shipping.bench.surroundings import without_table
from tuccl.shipping.bench.upgrade import Upgrade, UpgradeResult, upgrade_contenders, upgrade_result
from tuccl.views.terminal import display
from tuccl.views.terminal.bench_display import print_bench, print_upgrade
from tuccl.views.terminal.json_output import print_document
from tuccl.views.terminal.progress import shown_progress
from tuccl.workloads.call_timing import has_place, mostly_in_place, mostly_outside_graphs
from tuccl.workloads.step_calls import StepCalls
from tuccl.workloads.workload import Workload
from tuccl.workloads.workload_file import read_workload
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.default_place import DEFAULT_WORKSPACE
from tuccl.workspace.runs import Workspace

ROUNDS = 5
"""Default number of rounds, without a budget."""
_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of the command, parsed."""

    command: BenchCommand
    places: tuple[Path, ...]
    operations: tuple[Operation, ...] | None
    sizes_bytes: tuple[int, ...] | None
    workload: Workload | None
    plan: Plan
    environment: Mapping[str, str]
    """Environment of the jobs: this process's, without a table's variables."""
    laboratory: Laboratory
    upgrade: Upgrade | None
    """The releases to hold against each other; None: one NCCL serves all jobs."""


def bench(command: BenchCommand) -> int:
    """Run `tuccl bench`; exit code 1 where a key is slower than stock NCCL, or than promised."""
    wanted = _understood(command)
    tasks = mpi_tasks(os.environ)
    if tasks < 2:
        return _bench_here(wanted)
    if command.gpus is not None or wanted.laboratory.nodes > 1:
        raise UsageError(
            f"--gpus and --fake-nodes choose among one host's GPUs: here MPI has started {tasks} "
            "tasks, one for each GPU"
        )

    def look() -> None:
        _require_run(command)
        check_environment(wanted.environment)

    code, nccl = look_on_all_ranks(
        tasks,
        look,
        exit_code_of,
        measures_nccl=True,
        required=True,
        environment=wanted.environment,
    )
    if code != ExitCode.OK:
        return code

    def lead(places: Places) -> int:
        if len({place.host for place in places.places}) > 1 and not _are_shipped(wanted):
            raise UsageError(
                "a workspace's table is on one host: `tuccl ship` it to a directory that all "
                "hosts see, and name that"
            )
        with (
            closing(places),
            found_tables(wanted.places, with_executor=not command.no_executor) as found,
        ):
            return _bench(wanted, found, places)

    return run_measuring_ranks(
        tasks,
        ending_job_when_terminated(lead),
        exit_code_of,
        environment={**wanted.environment, **nccl.variables},
    )


def _understood(command: BenchCommand) -> _Wanted:
    """Parse the options.

    Raises:
        UsageError: Options are impossible or contradict each other.
    """
    if command.place is not None and command.workspace != DEFAULT_WORKSPACE:
        raise UsageError(f"name {command.place} or --workspace {command.workspace}, not both")
    if command.rounds is not None and command.rounds < LEAST_ROUNDS:
        raise UsageError(f"--rounds {command.rounds}: two at least, since one tells no noise")
    if command.gpus is not None and command.gpus < 1:
        raise UsageError(f"--gpus {command.gpus}: one at least")
    laboratory = _laboratory(command)
    budget_s = None if command.budget is None else parse_seconds(command.budget, "--budget")
    rounds = command.rounds or (ROUNDS if budget_s is None else _MOST_ROUNDS)
    named = [word.strip() for word in (command.sizes or "").split(",") if word.strip()]
    if command.sizes is not None and not named:
        raise UsageError("no size given: use for example --sizes 64K,1M,16M")
    if command.workload is not None and (command.sizes or command.operations):
        raise UsageError("--workload names operations and sizes: leave out --ops and --sizes")
    operations = None if command.operations is None else parse_operations(command.operations)
    first = command.place if command.place is not None else command.workspace
    environment = without_table(os.environ)
    upgrade = _upgrade(command, environment)
    if upgrade is None and command.nccl is not None:
        environment[LIBRARY_VARIABLE] = str(absolute(command.nccl))
    return _Wanted(
        command,
        (first,) if command.second_place is None else (first, command.second_place),
        operations,
        tuple(map(parse_size, named)) or None,
        None if command.workload is None else read_workload(command.workload),
        Plan(rounds, budget_s),
        environment,
        laboratory,
        upgrade,
    )


def _laboratory(command: BenchCommand) -> Laboratory:
    """Return the nodes that this host appears as.

    Raises:
        UsageError: They are no nodes, or one that shares GPUs and whose ranks are not given.
    """
    nodes, sizes = parse_node_sizes(command.fake_nodes)
    if command.share_gpus and nodes == 1 and command.gpus is None:
        raise UsageError(
            "--share-gpus says what GPUs faked nodes have: name two --fake-nodes or more, or with "
            "--gpus how many GPUs this host appears to have"
        )
    control = congestion_control() if nodes > 1 else ""
    return Laboratory(nodes, command.share_gpus, control, sizes)


def _upgrade(command: BenchCommand, environment: Mapping[str, str]) -> Upgrade | None:
    """Return the releases of an upgrade; None where `--nccl` names none but the one found.

    Raises:
        UsageError: A second table is named beside another NCCL.
        NcclLibraryError: The NCCL cannot be loaded, is too old, or it is not clear which one jobs
            load today.
    """
    if command.nccl is None:
        return None
    new = find_nccl(str(absolute(command.nccl)), environment)
    try:
        old = find_nccl(None, environment)
    except SeveralNcclsError:
        raise
    except NcclLibraryError:
        return None  # There is no other.
    if old.version == new.version:
        return None
    if command.second_place is not None:
        raise UsageError(
            f"--nccl {command.nccl} is NCCL {new.version_text}, jobs here load {old.version_text}: "
            f"name one table to hold both against each other, or {LIBRARY_VARIABLE}={command.nccl} "
            "to bench two tables under it"
        )
    return Upgrade(old, new)


def _require_run(command: BenchCommand) -> None:
    """Require a table in the workspace, where the command names no other place.

    Raises:
        WorkspaceError: It has none.
    """
    if command.place is None:
        Workspace(command.workspace).current()


def _tables(wanted: _Wanted) -> AbstractContextManager[tuple[FoundTable, ...]]:
    return found_tables(wanted.places, with_executor=not wanted.command.no_executor)


def _are_shipped(wanted: _Wanted) -> bool:
    return wanted.command.place is not None and all(
        (place / "tuccl.env").exists() for place in wanted.places
    )


def _bench_here(wanted: _Wanted) -> int:
    """Bench on the GPUs of this host."""
    command = wanted.command
    _require_run(command)
    with _tables(wanted) as found:
        check_environment(wanted.environment)
        nccl = nccl_of_host(wanted.environment)
        tell_nccl([nccl], required=True)
        laboratory = wanted.laboratory
        gpus = count_gpus(1 if command.share_gpus else command.gpus or 2)
        wanted_gpus = command.gpus or gpus
        ranks = laboratory.ranks(wanted_gpus)
        if laboratory.share_gpus:
            laboratory = laboratory.on_gpus(ranks, min(gpus, wanted_gpus))
            require_mps(laboratory.devices(ranks))
        elif ranks > wanted_gpus:
            raise UsageError(
                f"--fake-nodes {command.fake_nodes} needs {ranks} GPUs, here are {wanted_gpus}; "
                "--share-gpus lets each node have them all"
            )
        environment = {**wanted.environment, **nccl.variables}
        if laboratory.gpus:
            library = find_nccl(None, environment)
            environment |= sharing_variables(library, ranks, laboratory.gpus)
        if laboratory.nodes > 1 or laboratory.gpus:
            display.say_notes(laboratory.notes())
        with closing(LocalPlaces(ranks, laboratory.devices(ranks), environment)) as places:
            return _bench(replace(wanted, laboratory=laboratory), found, places)


def _bench(wanted: _Wanted, found: tuple[FoundTable, ...], places: Places) -> int:
    command = wanted.command
    faked = wanted.laboratory.node_sizes(len(places.places))
    shape = whole_shape(places.places, faked)
    tables = [table.shipped for table in found]
    for table in tables:
        require_entries(table, shape)
    display.say_notes(dict.fromkeys(note for table in found for note in table.notes))
    unplaced = (untimed_note(table.table, shape) for table in tables)
    display.say_notes(dict.fromkeys(filter(None, unplaced)))
    calls = None
    if wanted.workload is None:
        tasks = keys_of(found[0], shape, wanted.operations, wanted.sizes_bytes)
    else:
        calls = benched_calls(wanted.workload, shape, tables)
        display.say_notes(calls.left_out_notes)
        tasks = tuple(key.task for key in calls.keys)
    timing = _timing(wanted, calls, found)
    tables = [_judged(table, timing) for table in found]
    display.say(_announcement(wanted, len(tasks)))
    site = Site(places, shape, timing, faked, divisions_of(tasks, shape))
    contenders: tuple[Contender, ...] = (STOCK, *tables)
    if wanted.upgrade is not None:
        contenders = upgrade_contenders(tables[0], wanted.upgrade)
    with shown_progress() as progress:
        measured = Bench(site, contenders, tasks, progress, display.say).run(wanted.plan)
    if wanted.upgrade is not None:
        upgraded = upgrade_result(measured, tables[0], wanted.upgrade, shape, timing)
        return _print_upgrade(upgraded, as_json=command.as_json)
    result = bench_result(measured, tables, shape, timing, calls)
    if command.as_json:
        print_document(result)
    else:
        print_bench(result)
    return ExitCode.FINDING if result.has_findings else ExitCode.OK


def _timing(wanted: _Wanted, calls: StepCalls | None, found: Sequence[FoundTable]) -> Timing:
    """Return how calls are timed: as named, else as the workload makes them, else as tuned.

    Beside the computation of the workload they are timed where those of a table were.
    """
    plain, in_place = wanted.command.plain, wanted.command.in_place
    listed = found[0].listed
    beside = () if listed is None else listed.computations
    if calls is not None and wanted.workload is not None:
        plain = mostly_outside_graphs(wanted.workload) if plain is None else plain
        in_place = in_place or (mostly_in_place(wanted.workload) and has_place(calls))
        beside = _beside_workload(calls, found)
    elif listed is not None:
        plain = listed.graphs is False if plain is None else plain
        in_place = in_place or bool(listed.in_place)
    beside = () if wanted.command.alone else beside
    return Timing(graph=not plain, in_place=in_place, computations=beside)


def _beside_workload(calls: StepCalls, found: Sequence[FoundTable]) -> tuple[Computation, ...]:
    """Return the computation beside a workload's calls: as a table of it was tuned, if one was.

    Another recording of the same calls has other times.
    """
    listed = [table.listed for table in found if table.listed and table.listed.computations]
    of_it = (each for each in listed if each.step and each.step.workload == calls.digest)
    own = next(of_it, None)
    if own is not None:
        return own.computations
    return calls.computations if listed else ()


def _judged(found: FoundTable, timing: Timing) -> ShippedTable:
    """Return a table, whose stated gains are not held against it where it was timed otherwise."""
    tuned_beside = () if found.listed is None else found.listed.computations
    if tuned_beside == timing.computations:
        return found.shipped
    note = (
        f"{found.shipped.name} was tuned with other computation beside its calls than they are "
        "timed with here: what it promises is not looked at"
    )
    display.say_notes([note])
    return replace(found.shipped, timed_alike=False)


def _print_upgrade(result: UpgradeResult, *, as_json: bool) -> int:
    if as_json:
        print_document(result)
    else:
        print_upgrade(result)
    return ExitCode.FINDING if result.has_findings else ExitCode.OK


def _announcement(wanted: _Wanted, keys: int) -> str:
    plan, tables = wanted.plan, len(wanted.places)
    what = "stock NCCL and " + ("the table" if tables == 1 else f"{tables} tables")
    if wanted.upgrade is not None:
        old, new = wanted.upgrade.old.version_text, wanted.upgrade.new.version_text
        what += f", each under NCCL {old} and {new},"
    rounds = f"{plan.rounds} rounds"
    if plan.budget_s is not None:
        rounds = f"rounds for {format_about(plan.budget_s)}"
    return f"{count_of(keys, 'key')}, {rounds} of new processes for {what} in turn"
