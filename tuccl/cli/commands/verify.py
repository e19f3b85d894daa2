"""The command `tuccl verify`: read a schedule, prove it right or name its defect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from synthesizer.ir.msccl_limits import check_limits
from synthesizer.prove.defects import Defect
from synthesizer.prove.verifier import verify as verify_algorithm
from tuccl.errors import ExitCode, UsageError
from tuccl.schedules.across_hosts import AcrossHosts, across_hosts
from tuccl.schedules.schedule_files import read_schedule_file
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document


@dataclass(frozen=True, slots=True)
class Verification:
    """`verify`: whether a schedule is right."""

    file: Path
    algorithm: str
    proved: bool
    defects: tuple[Defect, ...]
    beyond_msccl_limits: tuple[str, ...]
    """Limits of MSCCL runtimes that the schedule exceeds, which does not make it wrong."""
    across_hosts: AcrossHosts | None
    """For the nodes of `--nodes`."""


def verify(file: Path, nodes: str | None, as_json: bool) -> int:
    """Run `tuccl verify FILE.xml`."""
    sizes = None if nodes is None else _node_sizes(nodes)
    algorithm = read_schedule_file(file)
    verdict = verify_algorithm(algorithm)
    limits = check_limits(algorithm)
    across = None if sizes is None else across_hosts(algorithm, sizes)
    if as_json:
        print_document(
            Verification(
                file, algorithm.name, verdict.proved, verdict.defects, tuple(limits), across
            )
        )
    else:
        subject = f"{algorithm.name}, {algorithm.collective.value} on {algorithm.ranks} ranks"
        print(f"{file}: {subject}: {verdict.describe()}")  # noqa: T201 - the command's result
        if across is not None:
            print(f"{file}: {across.as_text()}")  # noqa: T201 - the command's result
        for limit in limits:
            display.say(f"note: an MSCCL runtime would not run it: {limit}")
    whole = verdict.proved and (across is None or across.why_not is None)
    return ExitCode.OK if whole else ExitCode.FINDING


def _node_sizes(text: str) -> tuple[int, ...]:
    sizes = text.split("+")
    if len(sizes) < 2 or not all(size.isdecimal() and len(size) < 10 for size in sizes):
        raise UsageError(f"--nodes {text}: not the ranks of several nodes, as 4+4 or 3+1")
    return tuple(map(int, sizes))
