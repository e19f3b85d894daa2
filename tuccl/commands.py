"""What each command does, between the command line and the packages."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lookup_tables.table import Shape, Table
from probes.topology import Topology
from tuccl import display, shipping
from tuccl.backends.figures import communicator_shape
from tuccl.errors import ExitCode, UsageError
from tuccl.explanation import Explanation, read_report
from tuccl.explanation import explain as explain_call
from tuccl.machine import MachineOptions, load_machine
from tuccl.pipeline import InitResult, initialize, read_table
from tuccl.retuning import archive, compare, previous_machine
from tuccl.settings import RunSettings, describe_sizes, make_settings, parse_operation
from tuccl.sizes import format_size, parse_size
from tuccl.workspace import Workspace

SCHEMA_VERSION = 1


def init(options: dict[str, Any], root: Path, as_json: bool) -> int:
    """`tuccl init`: tune, or say that there is nothing to do."""
    topology, settings = _inputs(options)
    workspace = Workspace(root)
    result = _run(topology, settings, workspace, options)
    if result.already_done:
        display.say(f"nothing to do: {root} holds this table already")
    else:
        display.say(f"table and bundle written to {root}")
    _print_result(result.table, workspace, as_json)
    return ExitCode.OK


def show_table(root: Path, as_json: bool) -> int:
    """`tuccl table`."""
    workspace = Workspace(root)
    _print_result(read_table(workspace), workspace, as_json)
    return ExitCode.OK


def explain(operation_name: str, size: str, root: Path, as_json: bool) -> int:
    """`tuccl explain OP SIZE`."""
    operation, size_bytes = parse_operation(operation_name), parse_size(size)
    workspace = Workspace(root)
    table = read_table(workspace)
    _, topology = previous_machine(workspace)
    report = read_report(workspace)
    found = explain_call(table, report, operation, size_bytes, communicator_shape(topology))
    if as_json:
        _print_json(_explanation_as_dict(found))
    else:
        for line in _explanation_lines(found, table):
            print(line)  # noqa: T201 - the command's result
    return ExitCode.OK if found.entry is not None else ExitCode.FINDING


def ship(directory: Path, root: Path, as_json: bool) -> int:
    """`tuccl ship DIR`."""
    files = shipping.ship(Workspace(root), directory)
    if as_json:
        _print_json({"files": [str(path) for path in files]})
    else:
        for path in files:
            print(path)  # noqa: T201 - the command's result
        display.say(f"a job loads it with: . {directory.resolve()}/tuccl.env")
    return ExitCode.OK


def retune(topology_file: Path | None, root: Path, as_json: bool) -> int:
    """`tuccl retune`."""
    workspace = Workspace(root)
    record, before = previous_machine(workspace)
    options = dict(record.options)
    if topology_file is not None:
        options["topology"] = str(topology_file.resolve())
    topology, settings = _inputs(options)
    change = compare(before, topology)
    kept: str | None = None
    if change.changes:
        for sentence in change.changes:
            display.say(f"changed: {sentence}")
        with workspace.lock():
            kept = str(archive(workspace, change.before))
        display.say(f"the old table is kept in {kept}")
    elif record.complete:
        display.say(f"the machine is as it was (topology {change.now}): the table stands")
    result = _run(topology, settings, workspace, options)
    if as_json:
        document = {"changes": list(change.changes), "kept": kept, "tuned": not result.already_done}
        _print_json({**document, **asdict(change), **_table_as_dict(result.table, workspace)})
    elif not result.already_done:
        display.print_table(result.table, read_report(workspace))
    return ExitCode.OK


def verify(file: Path, as_json: bool) -> int:
    """`tuccl verify FILE.xml`."""
    from synthesizer.msccl_xml import read_msccl_xml
    from synthesizer.verifier import verdict_as_dict
    from synthesizer.verifier import verify as verify_algorithm

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; name an MSCCL XML file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; name an MSCCL XML file") from error
    algorithm = read_msccl_xml(text, str(file))
    verdict = verify_algorithm(algorithm)
    if as_json:
        name = {"file": str(file), "algorithm": algorithm.name}
        _print_json({**name, **verdict_as_dict(verdict)})
    else:
        subject = f"{algorithm.name}, {algorithm.collective.value} on {algorithm.ranks} ranks"
        print(f"{file}: {subject}: {verdict.describe()}")  # noqa: T201 - the command's result
    return ExitCode.OK if verdict.proved else ExitCode.FINDING


def _inputs(options: dict[str, Any]) -> tuple[Topology, RunSettings]:
    """Machine and settings from a command line's options, new or recorded."""
    settings = make_settings(
        options["operations"],
        parse_size(options["min_size"]),
        parse_size(options["max_size"]),
        options["step"],
        backend=options["backend"],
        seed=options["seed"],
    )
    machine = MachineOptions(
        topology_file=Path(options["topology"]),
        nodes=options["nodes"],
        network_gbit_per_s=options["network_gbps"],
        network_latency_us=options["network_latency_us"],
        network_layout=options["network_layout"],
    )
    return load_machine(machine), settings


def _run(
    topology: Topology, settings: RunSettings, workspace: Workspace, options: dict[str, Any]
) -> InitResult:
    shape = communicator_shape(topology)
    display.say(
        f"{topology.name}: {shape.ranks} GPUs on {shape.nodes} node(s); "
        f"{', '.join(settings.operations)}; {describe_sizes(settings.sizes_bytes)}"
    )
    for note in topology.notes:
        display.say(f"note: {note}")
    with display.progress_line() as progress:
        return initialize(topology, settings, workspace, options, progress)


def _print_result(table: Table, workspace: Workspace, as_json: bool) -> None:
    if as_json:
        _print_json(_table_as_dict(table, workspace))
    else:
        display.print_table(table, read_report(workspace))


def _table_as_dict(table: Table, workspace: Workspace) -> dict[str, Any]:
    return {
        "topology": table.topology_name,
        "fingerprint": table.fingerprint,
        "profile": dict(table.profile),
        "entries": [asdict(entry) for entry in table.entries],
        "keys": read_report(workspace)["keys"],
        "table": str(workspace.table),
        "bundle": str(workspace.bundle),
    }


def _explanation_as_dict(found: Explanation) -> dict[str, Any]:
    return {
        "operation": found.operation.value,
        "size_bytes": found.size_bytes,
        "shape": asdict(found.shape),
        "entry": None if found.entry is None else asdict(found.entry),
        "tuned_bytes": found.tuned_bytes,
        "evidence": found.evidence,
    }


def _explanation_lines(found: Explanation, table: Table) -> list[str]:
    evidence = found.evidence
    call = f"{found.operation.value} of {format_size(found.size_bytes)}, {_shape(found.shape)}"
    if found.entry is None:
        lines = [f"{call}: no entry, NCCL chooses by itself"]
    else:
        key = found.entry.key
        lines = [
            f"{call}: {display.describe_winner(found.entry, table)}",
            f"  the entry holds from {key.min_bytes} to {key.max_bytes} bytes",
        ]
        if found.entry.schedule is not None and found.entry.builtin is not None:
            alone = found.entry.builtin
            lines.append(
                f"  without the executor: {alone.algorithm.value} {alone.protocol.value}, "
                f"{found.entry.builtin_time_us:.2f} us"
            )
    effort = f"{evidence['configs_tried']} configurations, {evidence['repeats_measured']} samples"
    lines += [
        f"  measured at {format_size(found.tuned_bytes)}: stock NCCL {evidence['stock_us']:.2f} us",
        f"  {evidence['why']}",
        f"  searched: {effort}",
    ]
    lines += [
        f"  rejected: {other['config']}, {other['time_us']:.2f} us, {other['ratio']:.3f}x"
        for other in evidence["rejected"]
    ]
    return lines


def _shape(shape: Shape) -> str:
    return f"{shape.ranks} ranks on {shape.nodes} node(s)"


def _print_json(document: dict[str, Any]) -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2)
    print(text)  # noqa: T201 - the command's result
