"""The command `tuccl verify`: prove a schedule right or name its defect, and simulate it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, MACHINE, NETWORK, SCOPE, machine_name, option

if TYPE_CHECKING:
    from lookup_tables.table import Shape
    from probes.topology.graph import Topology
    from synthesizer.ir.algorithm import Algorithm


_IN_PARTS = (
    "an MSCCL runtime waits for ever in calls with larger messages than its buffers hold; give a "
    "maxBytes below that"
)


@dataclass(frozen=True)
class VerifyOptions:
    """The options of `tuccl verify`."""

    file: Path = option(
        "", "MSCCL XML, or a program in the schedule language (.py).", "FILE", positional=True
    )
    nodes: str | None = option(
        NETWORK,
        "Ranks of each node, as 4+4 or 3+1: also cut it into rounds on the network, and call a"
        " program's function with them; 4 for one node.",
        "SIZES",
        default=None,
    )
    topology: str | None = option(
        MACHINE,
        "Simulate it there: a file or shipped:NAME; a single host is copied to --nodes.",
        "MACHINE",
        default=None,
        parse=machine_name,
    )
    size: str | None = option(
        SCOPE,
        "Sizes to simulate, as 64K,1G, as nccl-tests counts them; 1M if not given.",
        "SIZES",
        default=None,
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl verify schedule.xml")
def verify(options: VerifyOptions) -> int:
    """Prove a schedule right. Exit code 0: proved; 1: the defect is named."""
    from lookup_tables.collective import Collective
    from synthesizer.ir.msccl_limits import check_limits
    from synthesizer.prove.verifier import deadlock_in_parts
    from synthesizer.prove.verifier import verify as prove
    from tuccl.quantities import parse_size
    from tuccl.schedules.across_hosts import across_hosts
    from tuccl.schedules.own_schedules import read_schedule
    from tuccl.schedules.schedule_files import read_schedule_file
    from tuccl.schedules.verification import Verification, simulated_on
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_document

    file = options.file
    sizes = None if options.nodes is None else _node_sizes(options.nodes)
    if options.size is not None and options.topology is None:
        raise UsageError("--size: give the machine to simulate it on, as --topology FILE")
    sizes_bytes = [parse_size(word.strip()) for word in (options.size or "1M").split(",")]
    machine = None if options.topology is None else _machine(options.topology, sizes)
    if sizes is None and machine is not None:
        sizes = _own_sizes(machine)
    python = file.suffix == ".py"
    algorithm = read_schedule(file, _shape(sizes)) if python else read_schedule_file(file)
    if machine is not None:
        _require_as_many(file, algorithm, machine)
    verdict = prove(algorithm)
    limits = check_limits(algorithm)
    hang = deadlock_in_parts(algorithm) if verdict.proved else None
    parts = () if hang is None else (f"{_IN_PARTS}: {hang.describe()}",)
    called = algorithm.collective is not Collective.CUSTOM and len(sizes or ()) > 1
    across = across_hosts(algorithm, sizes) if sizes is not None and called else None
    simulated = simulated_on(machine, algorithm, sizes_bytes) if machine and verdict.proved else ()
    if options.as_json:
        print_document(
            Verification(
                file,
                algorithm.name,
                verdict.proved,
                verdict.defects,
                (*limits, *parts),
                across,
                simulated,
            )
        )
    else:
        subject = f"{algorithm.name}, {algorithm.collective.value} on {algorithm.ranks} ranks"
        print(f"{file}: {subject}: {verdict.describe()}")
        if across is not None:
            print(f"{file}: {across.as_text()}")
        for each in simulated:
            print(f"{file}: {each.as_text()}")
        for limit in limits:
            display.say(f"note: an MSCCL runtime would not run it: {limit}")
        for part in parts:
            display.say(f"note: {part}")
    whole = verdict.proved and (across is None or across.why_not is None)
    return ExitCode.OK if whole else ExitCode.FINDING


def _machine(named: str, sizes: tuple[int, ...] | None) -> Topology:
    """Return the machine, or copies of a single host, joined as `tuccl init` joins them."""
    from tuccl.options.machine import load_machine
    from tuccl.options.machine_argument import read_machine_argument
    from tuccl.options.machine_options import MachineOptions

    machine = read_machine_argument(named)
    if sizes is None:
        return machine
    if machine.node_count > 1:
        own = _own_sizes(machine)
        if own != sizes:
            asked = "+".join(map(str, sizes))
            raise UsageError(
                f"--nodes {asked}: {machine.name} has nodes of {'+'.join(map(str, own))} GPUs; "
                "leave --nodes out, or name a single host to be copied"
            )
        return machine
    node_gpus = ",".join(map(str, sizes))
    return load_machine(MachineOptions(nodes=len(sizes), node_gpus=node_gpus), machine)


def _own_sizes(machine: Topology) -> tuple[int, ...]:
    """Return the number of GPUs of each node."""
    return tuple(Counter(machine.node_of_rank).values())


def _require_as_many(file: Path, algorithm: Algorithm, topology: Topology) -> None:
    if algorithm.ranks != len(topology.gpus):
        raise UsageError(
            f"{file}: the schedule is for {algorithm.ranks} ranks, and {topology.name} has "
            f"{len(topology.gpus)} GPUs: name another machine, or its copies as --nodes 8+8"
        )


def _shape(sizes: tuple[int, ...] | None) -> Shape | None:
    """Return the shape of equal nodes; None if they are unknown or differ."""
    from lookup_tables.table import Shape

    if sizes is None or len(set(sizes)) > 1:
        return None
    return Shape(sum(sizes), len(sizes), sizes[0])


def _node_sizes(text: str) -> tuple[int, ...]:
    sizes = text.split("+")
    if not all(size.isdecimal() and len(size) < 10 and int(size) for size in sizes):
        raise UsageError(f"--nodes {text}: give the ranks of each node, as 4+4, 3+1 or 4")
    return tuple(map(int, sizes))
