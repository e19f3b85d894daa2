"""What `tuccl verify` does: read a schedule, prove it right or name its defect."""

from __future__ import annotations

import sys
from pathlib import Path

from probes.inputs.regular_file import read_regular_file
from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.prove.verifier import verdict_as_dict
from synthesizer.prove.verifier import verify as verify_algorithm
from tuccl.console import display
from tuccl.console.json_output import print_document
from tuccl.errors import ExitCode, UsageError
from tuccl.reports.json_documents import VerifyDocument

_STANDARD_INPUT = Path("/dev/stdin")


def verify(file: Path, as_json: bool) -> int:
    """`tuccl verify FILE.xml`."""
    try:
        given = sys.stdin.buffer.read() if file == _STANDARD_INPUT else read_regular_file(file)
        text = given.decode()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; name an MSCCL XML file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; name an MSCCL XML file") from error
    algorithm = read_msccl_xml(text, str(file))
    verdict = verify_algorithm(algorithm)
    limits = check_limits(algorithm)
    if as_json:
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
