"""Options that several commands take, with one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from tuccl.cli.help import MACHINE, MEASURING, OUTPUT, SCOPE, SEARCH


def machine_option(help_text: str) -> OptionInfo:
    """An option that names a machine; it gets the name that serves from any directory."""
    option: OptionInfo = typer.Option(
        metavar="MACHINE", parser=_machine_name, help=help_text, rich_help_panel=MACHINE
    )
    return option


def _machine_name(text: str) -> str:
    from tuccl.inputs.machine_argument import absolute_machine_argument

    return absolute_machine_argument(text)


def named_path(text: str) -> Path:
    """A path that is not empty, as one of a shell variable that was never set is."""
    if not text:
        raise typer.BadParameter("it is empty.")
    return Path(text)


def _file_name(text: str) -> str:
    from tuccl.workspace.atomic_file import absolute

    return str(absolute(Path(text)))


WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        metavar="DIR",
        help="Directory that holds the runs.",
        readable=False,
        rich_help_panel=OUTPUT,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON to standard output.", rich_help_panel=OUTPUT)
]
NodesOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Machines like it, joined by a network.", rich_help_panel=MACHINE
    ),
]
NetworkGbpsOption = Annotated[
    float | None,
    typer.Option(
        metavar="GBPS",
        help="Gbit/s of every network link; the NIC's own if not given.",
        rich_help_panel=MACHINE,
    ),
]
NetworkLatencyOption = Annotated[
    float, typer.Option(metavar="US", help="From NIC to NIC, in us.", rich_help_panel=MACHINE)
]
NetworkLayoutOption = Annotated[
    str,
    typer.Option(
        metavar="rails|fabric",
        help="rails: NIC i of every node on one switch; fabric: all on one.",
        rich_help_panel=MACHINE,
    ),
]
OperationsOption = Annotated[
    str | None,
    typer.Option(
        metavar="OP,...",
        help="As nccl-tests names them; if not given, all of the record, or "
        "all_reduce,all_gather,reduce_scatter. `init` takes alltoall where it searches schedules.",
        show_default=False,
        rich_help_panel=SCOPE,
    ),
]
MinSizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Smallest size, as 1K; the record's, or 1K.",
        show_default=False,
        rich_help_panel=SCOPE,
    ),
]
MaxSizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Largest size, as 1G; the record's, or 1G.",
        show_default=False,
        rich_help_panel=SCOPE,
    ),
]
StepOption = Annotated[
    int | None,
    typer.Option(
        metavar="FACTOR",
        help="From one size to the next; 4 if not given.",
        show_default=False,
        rich_help_panel=SCOPE,
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What measures: nccl, simulated, replay, executor, nccl,executor or sockets; if not "
        "given, replay where there are --records, nccl on this host's GPUs where no MACHINE is "
        "given, else simulated.",
        show_default=False,
        rich_help_panel=MEASURING,
    ),
]
RecordsOption = Annotated[
    str | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="What --backend replay replays: Parquet that --record wrote, or a grid as CSV.",
        parser=_file_name,
        rich_help_panel=MEASURING,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE.json",
        help="Constants of --backend simulated, as `tuccl calibrate` writes them.",
        parser=_file_name,
        rich_help_panel=MEASURING,
    ),
]
SchedulesOption = Annotated[
    str | None,
    typer.Option(
        "--schedules",
        metavar="DIR",
        help="Schedules of your own, as MSCCL XML or in the schedule language, that are proved and "
        "searched beside those that are made.",
        parser=_file_name,
        rich_help_panel=SEARCH,
    ),
]
RecordToOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE.parquet",
        help="Write all that was measured there.",
        readable=False,
        rich_help_panel=OUTPUT,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Let --record replace a file that is not this run's record."),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Of the machine, for measuring, as 30s, 20m, 2h; if not given, as long as the "
        "search finds something.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
FloorOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATIO",
        help="Least share of stock NCCL's speed that a process profile leaves every key, or none; "
        "0.99 if not given.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="OP=W,...",
        help="How much operations count when the process profile is chosen, as all_reduce=3; "
        "1 if not given.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
PlainOption = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Time calls one by one, for jobs that make them outside of CUDA graphs.",
        rich_help_panel=MEASURING,
    ),
]
InPlaceOption = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="Time calls whose send and receive buffer are one.",
        rich_help_panel=MEASURING,
    ),
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Of search and simulated noise.", rich_help_panel=SEARCH)
]
CyclesOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Most passes of a search; it may stop by itself from the third on.",
        rich_help_panel=SEARCH,
    ),
]
