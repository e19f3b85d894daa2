"""The command `tuccl export`: a table in a form that others read."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import (
    AS_JSON,
    DEFAULT_WORKSPACE,
    OUTPUT,
    OUTPUT_FILE,
    TABLE_DIRECTORY,
    named_path,
    option,
)

if TYPE_CHECKING:
    from tuccl.shipping.exports.export_form import ExportForm

FORMS = {
    "tuner-csv": "for NCCL's example tuner.",
    "thresholds": "up to which size a serving engine's own all_reduce is faster.",
}
"""Forms with their help, each a module of `tuccl.shipping.exports`."""


@dataclass(frozen=True)
class ExportOptions:
    """The options of `tuccl export`."""

    directory: Path = field(default=DEFAULT_WORKSPACE, metadata=TABLE_DIRECTORY)
    form: str = option(
        OUTPUT,
        " ".join(f"{name}: {words}" for name, words in FORMS.items()),
        "FORM",
        default="tuner-csv",
        names=("--to",),
    )
    against: Path | None = option(
        OUTPUT,
        "The engine's own times, for --to thresholds: columns operation, size_bytes, ranks, "
        "us_per_call.",
        "TIMES.csv",
        default=None,
        parse=named_path,
    )
    output: Path | None = option(
        OUTPUT,
        "The file, which replaces an earlier export; nccl_tuner.conf or "
        "all_reduce_thresholds.json if not given.",
        "FILE",
        default=None,
        names=OUTPUT_FILE,
        parse=named_path,
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl export --to tuner-csv -o nccl_tuner.conf",
    "tuccl export /shared/tuccl",
    "tuccl export --to thresholds --against own.csv",
)
def export(options: ExportOptions) -> int:
    """Write a table for jobs that cannot load the plugin, and note what the form cannot express."""
    from tuccl.options.output_file import check_output, require_replaceable
    from tuccl.shipping.exports.export_form import ExportSource
    from tuccl.views.page.place import read_place
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_document
    from tuccl.workspace.atomic_file import write_atomically

    form = _form(options.form)
    if form.needs_own_times != (options.against is not None):
        raise UsageError("--against TIMES.csv goes with --to thresholds, which needs it")
    target = Path(form.file_name) if options.output is None else options.output
    check_output(target, "--output")
    require_replaceable(target, "--output", form.mark.encode())
    found = read_place(options.directory)
    source = ExportSource(found.name, found.table, found.report, options.against)
    exported = form.export(source, target)
    write_atomically(target, exported.text)
    notes = (*filter(None, [found.evidence.caveat]), *exported.notes)
    if options.as_json:
        print_document(TableExport(target, options.form, exported.rows, notes))
    else:
        print(target)
        for line in exported.said:
            display.say(line)
    display.say_notes(notes)
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class TableExport:
    """`export`: a table in a form for others' readers."""

    file: Path
    form: str
    """tuner-csv or thresholds."""
    rows: int
    """Rows of the CSV, or communicators with a threshold."""
    notes: tuple[str, ...]
    """Contents of the table that the form cannot hold, and reasons not to rely on it."""


def _form(name: str) -> ExportForm:
    if name not in FORMS:
        raise UsageError(f"--to {name!a:.40} is unknown: use {' or '.join(FORMS)}")
    module = import_module(f"tuccl.shipping.exports.{name.replace('-', '_')}")
    form: ExportForm = module.FORM
    return form
