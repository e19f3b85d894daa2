"""What each command does, between the command line and the packages."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from lookup_tables.table import Shape
from probes.cluster.crew import Crew
from probes.regular_file import read_regular_file
from probes.topology import Topology
from tuccl import display, shipping
from tuccl.backends.figures import communicator_shape
from tuccl.default_backend import with_backend
from tuccl.dry_run import make_plan, plan_lines
from tuccl.errors import ExitCode, UsageError
from tuccl.explanation import Explanation
from tuccl.explanation import explain as explain_call
from tuccl.measuring.places import Places
from tuccl.pipeline import InitResult, read_machine, read_table
from tuccl.probed_machine import keep, probe_again, probed_machine
from tuccl.report import KeyReport, Report, read_report
from tuccl.resuming import require_begun
from tuccl.retuning import changes_since
from tuccl.running import Prepared, prepare, run, with_ranks
from tuccl.settings import parse_operation
from tuccl.sizes import format_size, parse_size
from tuccl.workspace import Workspace

SCHEMA_VERSION = 1
_STANDARD_INPUT = Path("/dev/stdin")


@dataclass(frozen=True, slots=True)
class TuneCommand:
    """What `tuccl tune` was asked for."""

    options: dict[str, JsonValue]
    workspace: Path
    record_to: Path | None
    dry_run: bool
    resume: bool
    as_json: bool


def init(
    options: dict[str, JsonValue], root: Path, as_json: bool, record_to: Path | None = None
) -> int:
    """`tuccl init`: tune, or say that there is nothing to do. Probes where no machine is given."""
    options = with_backend(options)

    def lead(probed: Callable[[], Topology], places: Places | None) -> int:
        return _run(prepare(options, probed), root, as_json, record_to, places)

    return with_ranks(options, lambda crew: probed_machine(root, crew), lead)


def tune(command: TuneCommand) -> int:
    """`tuccl tune`: the tuning stage alone."""
    if command.dry_run:
        return _plan(command)
    options = with_backend(command.options)

    def lead(probed: Callable[[], Topology], places: Places | None) -> int:
        prepared = prepare(options, probed)
        if command.resume:
            identity = prepared.settings.identity(prepared.topology)
            workspace = Workspace(command.workspace)
            require_begun(workspace, identity, prepared.options, prepared.topology)
        return _run(prepared, command.workspace, command.as_json, command.record_to, places)

    return with_ranks(options, lambda crew: probed_machine(command.workspace, crew), lead)


def _plan(command: TuneCommand) -> int:
    def probed() -> Topology:
        raise UsageError("--dry-run needs --topology or --records: to probe is to measure")

    prepared = prepare(command.options, probed)
    plan = make_plan(prepared.settings, prepared.request)
    if command.as_json:
        _print_json(asdict(plan))
    else:
        print("\n".join(plan_lines(plan)))  # noqa: T201 - the command's result
    return ExitCode.OK


def _run(
    prepared: Prepared, root: Path, as_json: bool, record_to: Path | None, places: Places | None
) -> int:
    result = run(prepared, Workspace(root), record_to, places)
    if result.already_done:
        display.say(f"nothing to do: {root} holds this table already")
    else:
        display.say(f"table and bundle written to {result.run.root}")
    _print_result(result, as_json)
    return ExitCode.OK


def show_table(root: Path, as_json: bool) -> int:
    """`tuccl table`."""
    _print_result(_current(root), as_json)
    return ExitCode.OK


def explain(operation_name: str, size: str, root: Path, as_json: bool) -> int:
    """`tuccl explain OP SIZE`."""
    operation, size_bytes = parse_operation(operation_name), parse_size(size)
    current = _current(root)
    shape = communicator_shape(read_machine(current.run))
    found = explain_call(current.table, current.report, operation, size_bytes, shape)
    if as_json:
        _print_json({**_explanation_as_dict(found), "profile": dict(current.table.profile)})
    else:
        for line in _explanation_lines(found, current):
            print(line)  # noqa: T201 - the command's result
    return ExitCode.OK if found.entry is not None else ExitCode.FINDING


def ship(directory: Path, root: Path, as_json: bool) -> int:
    """`tuccl ship DIR`."""
    run = Workspace(root).current()
    files = shipping.ship(run, directory)
    if as_json:
        _print_json({"files": [str(path) for path in files]})
    else:
        for path in files:
            print(path)  # noqa: T201 - the command's result
        display.say(f"a job loads it with: . {shlex.quote(str(files[-1]))}")
    if note := shipping.caveat(read_table(run), read_report(run).backend):
        display.say(f"note: {note}")
    return ExitCode.OK


def retune(machine: str | None, root: Path, as_json: bool) -> int:
    """`tuccl retune`; a machine that was probed is probed again."""
    old = _current(root)
    record = old.run.record()
    options = dict(record.options) if record is not None else {}
    if machine is not None:
        options["topology"] = machine
    probed: list[Topology] = []

    def probe(crew: Crew) -> Topology:
        probed.append(probe_again(crew))
        return probed[-1]

    def lead(found: Callable[[], Topology], places: Places | None) -> int:
        return _retune(old, prepare(options, found), probed, root, as_json, places)

    return with_ranks(options, probe, lead)


def _retune(
    old: InitResult,
    prepared: Prepared,
    probed: Sequence[Topology],
    root: Path,
    as_json: bool,
    places: Places | None,
) -> int:
    change = changes_since(old.run, prepared.topology, prepared.settings)
    result = old
    if change.changes:
        for machine in probed:
            keep(machine, root)
        for sentence in change.changes:
            display.say(f"changed: {sentence}")
        result = run(prepared, Workspace(root), None, places)
        display.say(f"the old table is kept in {old.run.root}")
    else:
        display.say(f"the machine is as it was ({change.same}): the table stands")
    if as_json:
        kept = str(old.run.root) if change.changes else None
        document = {"tuned": not result.already_done, "kept": kept}
        looked = {"changes": change.changes, "before": change.before, "now": change.now}
        _print_json({**looked, **document, **_result_as_dict(result)})
    elif change.changes:
        display.print_table(result.table, result.report)
    return ExitCode.OK


def verify(file: Path, as_json: bool) -> int:
    """`tuccl verify FILE.xml`."""
    from synthesizer.msccl_limits import check_limits
    from synthesizer.msccl_xml import read_msccl_xml
    from synthesizer.verifier import verdict_as_dict
    from synthesizer.verifier import verify as verify_algorithm

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
        name = {"file": str(file), "algorithm": algorithm.name}
        _print_json({**name, **verdict_as_dict(verdict), "beyond_msccl_limits": list(limits)})
    else:
        subject = f"{algorithm.name}, {algorithm.collective.value} on {algorithm.ranks} ranks"
        print(f"{file}: {subject}: {verdict.describe()}")  # noqa: T201 - the command's result
        for limit in limits:
            display.say(f"note: an MSCCL runtime would not run it: {limit}")
    return ExitCode.OK if verdict.proved else ExitCode.FINDING


def _current(root: Path) -> InitResult:
    """The finished run of a workspace."""
    run = Workspace(root).current()
    return InitResult(run, read_table(run), read_report(run), already_done=True)


def _print_result(result: InitResult, as_json: bool) -> None:
    if as_json:
        _print_json(_result_as_dict(result))
    else:
        display.print_table(result.table, result.report)


def _result_as_dict(result: InitResult) -> dict[str, Any]:
    table = result.table
    return {
        "topology": table.topology_name,
        "fingerprint": table.fingerprint,
        "profile": dict(table.profile),
        "weights": result.report.weights,
        "entries": [asdict(entry) for entry in table.entries],
        "keys": [key.model_dump() for key in result.report.keys],
        "table": str(result.run.table),
        "bundle": str(result.run.bundle),
    }


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


def _explanation_lines(found: Explanation, current: InitResult) -> list[str]:
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


def _print_json(document: dict[str, Any]) -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2)
    print(text)  # noqa: T201 - the command's result
