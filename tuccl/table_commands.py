"""What `tuccl table`, `explain` and `ship` do with a table that is there.

They import nothing that measures, synthesizes or searches, so that they answer at once.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lookup_tables.table import Shape
from tuccl import display, shipping
from tuccl.backends.figures import communicator_shape
from tuccl.errors import ExitCode
from tuccl.explanation import Explanation
from tuccl.explanation import explain as explain_call
from tuccl.finished_run import FinishedRun, current_run, read_machine
from tuccl.json_output import print_json
from tuccl.operation_names import parse_operation
from tuccl.report import KeyReport, Report
from tuccl.result_output import SCHEMA_VERSION, print_result
from tuccl.sizes import format_size, parse_size
from tuccl.workspace import Workspace


def show_table(root: Path, as_json: bool) -> int:
    """`tuccl table`."""
    print_result(current_run(root), as_json)
    return ExitCode.OK


def explain(operation_name: str, size: str, root: Path, as_json: bool) -> int:
    """`tuccl explain OP SIZE`."""
    operation, size_bytes = parse_operation(operation_name), parse_size(size)
    current = current_run(root)
    shape = communicator_shape(read_machine(current.run))
    found = explain_call(current.table, current.report, operation, size_bytes, shape)
    if as_json:
        document = {**_explanation_as_dict(found), "profile": dict(current.table.profile)}
        print_json(document, SCHEMA_VERSION)
    else:
        for line in _explanation_lines(found, current):
            print(line)  # noqa: T201 - the command's result
    return ExitCode.OK if found.entry is not None else ExitCode.FINDING


def ship(directory: Path, root: Path, as_json: bool) -> int:
    """`tuccl ship DIR`."""
    shipped = shipping.ship(Workspace(root).current(), directory)
    if as_json:
        print_json({"files": [str(path) for path in shipped.files]}, SCHEMA_VERSION)
    else:
        for path in shipped.files:
            print(path)  # noqa: T201 - the command's result
        display.say(f"a job loads it with: . {shlex.quote(str(shipped.files[-1]))}")
    if shipped.caveat:
        display.say(f"note: {shipped.caveat}")
    return ExitCode.OK


def _explanation_as_dict(found: Explanation) -> dict[str, Any]:
    return {
        "operation": found.operation.value,
        "size_bytes": found.size_bytes,
        "shape": asdict(found.shape),
        "entry": None if found.entry is None else asdict(found.entry),
        "evidence": None if found.evidence is None else found.evidence.model_dump(),
        "tuned_from_bytes": found.tuned_from_bytes,
        "tuned_to_bytes": found.tuned_to_bytes,
    }


def _explanation_lines(found: Explanation, current: FinishedRun) -> list[str]:
    call = f"{found.operation.value} of {format_size(found.size_bytes)}, {_shape(found.shape)}"
    if found.entry is None:
        lines = [f"{call}: no entry, NCCL chooses by itself"]
    else:
        key = found.entry.key
        lines = [
            f"{call}: {display.describe_winner(found.entry, current.table)}",
            f"  the entry holds from {key.min_bytes} to {key.max_bytes} bytes",
        ]
        if found.entry.schedule is not None and found.entry.builtin is not None:
            alone = found.entry.builtin
            lines.append(
                f"  without the executor: {alone.algorithm.value} {alone.protocol.value}, "
                f"{found.entry.builtin_time_us:.2f} us"
            )
    if found.evidence is None:
        reach = f"{found.tuned_from_bytes} to {found.tuned_to_bytes} bytes"
        lines.append(f"  this size was not tuned: the table reaches from {reach}")
        if current.table.profile:
            profile = display.profile_text(current.table.profile)
            lines.append(f"  the process profile {profile} holds for it all the same")
        return lines
    return lines + _evidence_lines(found.evidence, current.report)


def _evidence_lines(evidence: KeyReport, report: Report) -> list[str]:
    effort = f"{evidence.configs_tried} configurations, {evidence.repeats_measured} samples"
    rejected = [
        f"  rejected: {other.config}, {other.time_us:.2f} us, {other.ratio:.3f}x"
        for other in evidence.rejected
    ]
    measured = f"stock NCCL {evidence.stock_us:.2f} us"
    if report.profile:
        under = f"{evidence.profile_default_us:.2f} us under the process profile"
        measured += f", {under} {display.profile_text(report.profile)}"
    lines = [
        f"  measured at {format_size(evidence.size_bytes)}: {measured}",
        f"  {evidence.why}",
        f"  searched: {effort}",
        *rejected,
    ]
    return [report.readable(line) for line in lines]


def _shape(shape: Shape) -> str:
    return f"{shape.ranks} ranks on {shape.nodes} node(s)"
