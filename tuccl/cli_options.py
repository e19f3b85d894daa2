"""Options that several commands take, with one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo


def machine_option(help_text: str) -> OptionInfo:
    """An option that names a machine; it gets the name that serves from any directory."""
    option: OptionInfo = typer.Option(metavar="MACHINE", parser=_machine_name, help=help_text)
    return option


def _machine_name(text: str) -> str:
    from tuccl.machine_argument import absolute_machine_argument

    return absolute_machine_argument(text)


def named_path(text: str) -> Path:
    """A path that is not empty, as one of a shell variable that was never set is."""
    if not text:
        raise typer.BadParameter("it is empty.")
    return Path(text)


def _file_name(text: str) -> str:
    from tuccl.atomic_file import absolute

    return str(absolute(Path(text)))


DEFAULT_WORKSPACE = Path("tuccl-workspace")
WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", help="Directory that holds the runs.", readable=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
NodesOption = Annotated[int, typer.Option(help="Machines like it, joined by a network.")]
NetworkGbpsOption = Annotated[
    float | None, typer.Option(help="Gbit/s of every network link; the NIC's own if not given.")
]
NetworkLatencyOption = Annotated[float, typer.Option(help="From NIC to NIC, in us.")]
NetworkLayoutOption = Annotated[
    str, typer.Option(help="rails: NIC i of every node on one switch; fabric: all on one.")
]
OperationsOption = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated, as nccl-tests names them; if not given, all of the record, or "
        "all_reduce,all_gather,reduce_scatter. `init` takes alltoall where it searches schedules.",
        show_default=False,
    ),
]
MinSizeOption = Annotated[
    str | None, typer.Option(help="Smallest size, as 1K; the record's, or 1K.", show_default=False)
]
MaxSizeOption = Annotated[
    str | None, typer.Option(help="Largest size, as 1G; the record's, or 1G.", show_default=False)
]
StepOption = Annotated[
    int | None,
    typer.Option(help="Factor from one size to the next; 4 if not given.", show_default=False),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        help="What measures: nccl, simulated, replay, ...; if not given, replay where there are "
        "--records, nccl on this host's GPUs where no MACHINE is given, else simulated.",
        show_default=False,
    ),
]
RecordsOption = Annotated[
    str | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="What --backend replay replays: Parquet that --record wrote, or a grid as CSV.",
        parser=_file_name,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE.json",
        help="Constants of --backend simulated, as `tuccl calibrate` writes them.",
        parser=_file_name,
    ),
]
RecordToOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE.parquet",
        help="Write all that was measured there.",
        readable=False,
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        help="Of the machine's time for measuring, as 30s, 20m, 2h; if not given, as long as the "
        "search finds something.",
        show_default=False,
    ),
]
FloorOption = Annotated[
    str | None,
    typer.Option(
        help="Least share of stock NCCL's speed that a process profile leaves every key, or none; "
        "0.99 if not given.",
        show_default=False,
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        help="How much operations count when the process profile is chosen, as all_reduce=3; "
        "1 if not given.",
        show_default=False,
    ),
]
PlainOption = Annotated[
    bool,
    typer.Option(
        "--plain", help="Time calls one by one, for jobs that make them outside of CUDA graphs."
    ),
]
InPlaceOption = Annotated[
    bool, typer.Option("--in-place", help="Time calls whose send and receive buffer are one.")
]
SeedOption = Annotated[int, typer.Option(help="Of search and simulated noise.")]
CyclesOption = Annotated[
    int, typer.Option(help="Most passes of a search; it may stop by itself from the third on.")
]
