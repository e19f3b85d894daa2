"""The command `tuccl tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from tuccl.cli.help import OUTPUT, SEARCH, examples
from tuccl.cli.options import (
    BackendOption,
    BudgetOption,
    CyclesOption,
    FloorOption,
    ForceOption,
    InPlaceOption,
    JsonOption,
    MaxSizeOption,
    MinSizeOption,
    ModelOption,
    OperationsOption,
    PlainOption,
    RecordsOption,
    RecordToOption,
    SeedOption,
    StepOption,
    WeightsOption,
    WorkspaceOption,
    machine_option,
)
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

EXAMPLES = examples(
    "tuccl tune --backend nccl --record h200.parquet --budget 10m",
    "tuccl tune --records h200.parquet",
)


def tune(
    topology: Annotated[
        str | None,
        machine_option("As for init; if not given, the record's, or this host is probed."),
    ] = None,
    operations: OperationsOption = None,
    min_size: MinSizeOption = None,
    max_size: MaxSizeOption = None,
    step: StepOption = None,
    backend: BackendOption = None,
    records: RecordsOption = None,
    model: ModelOption = None,
    record: RecordToOption = None,
    force: ForceOption = False,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How single keys are searched: mraco, algorithm-1, optuna-hyperband, tpe, "
            "coordinate, random, grid.",
            rich_help_panel=SEARCH,
        ),
    ] = "mraco",
    budget: BudgetOption = None,
    floor: FloorOption = None,
    weights: WeightsOption = None,
    plain: PlainOption = False,
    in_place: InPlaceOption = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only tell how large the search is and what it may cost.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a run that was begun; never begin another.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    seed: SeedOption = 0,
    cycles: CyclesOption = 1,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Search NCCL's own settings alone, without schedules. Run again, it continues."""
    from tuccl.commands import tune as tuning_commands

    command = tuning_commands.TuneCommand(
        options={
            "topology": topology,
            "operations": operations,
            "min_size": min_size,
            "max_size": max_size,
            "step": step,
            "backend": backend,
            "records": records,
            "model": model,
            "strategy": strategy,
            "budget": budget,
            "floor": floor,
            "weights": weights,
            "plain": plain,
            "in_place": in_place,
            "seed": seed,
            "cycles": cycles,
            "schedules": False,
        },
        workspace=workspace,
        record_to=record,
        force=force,
        dry_run=dry_run,
        resume=resume,
        as_json=as_json,
    )
    raise typer.Exit(tuning_commands.tune(command))
