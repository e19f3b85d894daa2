"""The command `tuccl bench`."""

from __future__ import annotations

from dataclasses import replace

import typer

from tuccl.cli.options.bench_command import BenchCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption, WorkspaceOption
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

EXAMPLES = examples(
    "tuccl bench",
    "tuccl bench /shared/tuccl --ops all_reduce --sizes 64K,1M,16M --rounds 7",
    "tuccl bench /shared/tuccl /shared/tuccl-new --budget 10m",
    "tuccl bench /shared/tuccl --workload job.json",
    "tuccl bench /shared/tuccl --nccl /opt/nccl-2.29/lib/libnccl.so.2",
)


@with_fields()
def bench(
    command: BenchCommand,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Measure a table against stock NCCL here and now, in new processes as jobs have them.

    Exit code 1: a key is slower than stock NCCL, or than the table promised, beyond the noise.
    """
    from tuccl.cli.commands.shipped import bench as benching

    raise typer.Exit(benching.bench(replace(command, workspace=workspace, as_json=as_json)))
