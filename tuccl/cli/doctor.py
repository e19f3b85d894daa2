"""The command `tuccl doctor`: whether a job that starts here loads its table, and why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.cli.command import command
from tuccl.errors import ExitCode
from tuccl.options.option import AS_JSON, named_path, option


@dataclass(frozen=True)
class DoctorOptions:
    """The options of `tuccl doctor`."""

    directory: Path | None = option(
        "",
        "A directory of `tuccl ship`, as if its tuccl.env were sourced; else the environment "
        "is examined as it is.",
        "DIR",
        default=None,
        positional=True,
        parse=named_path,
    )
    process: int | None = option(
        "",
        "Examine a running process instead: what it has loaded, and which of its calls to NCCL "
        "pass through the executor.",
        "PID",
        default=None,
        bounds=(1, 1 << 22),
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl doctor /shared/tuccl",
    ". /shared/tuccl/tuccl.env; tuccl doctor",
    "tuccl doctor --process 4711",
)
def doctor(options: DoctorOptions) -> int:
    """Say whether a job that starts here would load its table. Exit code 1: it would not."""
    from tuccl.errors import UsageError
    from tuccl.shipping.doctor.diagnosis import diagnose, diagnose_process
    from tuccl.views.terminal.display import print_lines
    from tuccl.views.terminal.findings_display import diagnosis_lines
    from tuccl.views.terminal.json_output import print_document
    from tuccl.workspace.atomic_file import absolute

    if options.process is not None:
        if options.directory is not None:
            raise UsageError("--process examines what a process has loaded: DIR cannot be given")
        found = diagnose_process(options.process)
    else:
        found = diagnose(None if options.directory is None else absolute(options.directory))
    if options.as_json:
        print_document(found)
    else:
        print_lines(diagnosis_lines(found))
    return ExitCode.OK if found.loads else ExitCode.FINDING
