"""The command `tuccl verify`: read a schedule, prove it right or name its defect."""

from __future__ import annotations

from pathlib import Path

from synthesizer.ir.msccl_limits import check_limits
from synthesizer.prove.verifier import verdict_as_dict
from synthesizer.prove.verifier import verify as verify_algorithm
from tuccl.console import display
from tuccl.console.json_output import print_document
from tuccl.errors import ExitCode
from tuccl.schedules.schedule_files import read_schedule_file


def verify(file: Path, as_json: bool) -> int:
    """Run `tuccl verify FILE.xml`."""
    algorithm = read_schedule_file(file)
    verdict = verify_algorithm(algorithm)
    limits = check_limits(algorithm)
    if as_json:
        from tuccl.reports.json_documents import VerifyDocument  # noqa: PLC0415 - for JSON

        found = {
            "file": str(file),
            "algorithm": algorithm.name,
            **verdict_as_dict(verdict),
            "beyond_msccl_limits": limits,
        }
        print_document(VerifyDocument.model_validate(found))
    else:
        subject = f"{algorithm.name}, {algorithm.collective.value} on {algorithm.ranks} ranks"
        print(f"{file}: {subject}: {verdict.describe()}")  # noqa: T201 - the command's result
        for limit in limits:
            display.say(f"note: an MSCCL runtime would not run it: {limit}")
    return ExitCode.OK if verdict.proved else ExitCode.FINDING
