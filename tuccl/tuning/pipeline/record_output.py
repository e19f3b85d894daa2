"""`--record FILE`: the file of a run's record, and the files that it must not replace.

A record costs hours of GPU time, so an existing file is replaced only if it is the record of the
same run. The run is identified only after probing; a file that is no record is refused before
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputFileError, UsageError
from tuccl.measuring.records.grid_csv import files_of
from tuccl.measuring.records.record import Record
from tuccl.measuring.records.record_file import run_of_record, write_record
from tuccl.options.output_file import check_output
from tuccl.options.run_options import RunOptions
from tuccl.workspace.atomic_file import require_room


@dataclass(frozen=True, slots=True)
class RecordOutput:
    """The file that a run's record is to be written to."""

    path: Path
    force: bool = False
    """Whether the record may replace any file."""

    def check(self, options: RunOptions) -> None:
        """Refuse unsuitable files before anything is probed or measured.

        Raises:
            UsageError: The file is an input of this run, a directory, or no record.
            WorkspaceError: The file cannot be written.
        """
        records = () if options.records is None else files_of(Path(options.records))
        inputs = (*records, options.topology, options.model, options.baseline)
        check_output(self.path, "--record", inputs)
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"--record {self.path} is a device or pipe: name a file")
        if not self._is_free():
            try:
                run_of_record(self.path)
            except InputFileError as error:
                raise UsageError(
                    f"--record {self.path} exists already and is not a record that this release "
                    "reads; name another file, or add --force to replace it"
                ) from error
        require_room(self.path)

    def check_run(self, identity: str) -> None:
        """Refuse the record of another run before anything is measured.

        Raises:
            UsageError: The file is the record of another run.
            InputFileError: The file is no longer a record, as it was at `check`.
        """
        if self._is_free():
            return
        found = run_of_record(self.path)
        if found != identity:
            whose = f"run {found}" if found else "a run that it does not name"
            raise UsageError(
                f"--record {self.path} is there already and holds the record of {whose}, this is "
                f"run {identity}; name another file, or add --force to replace it"
            )

    def write(self, record: Record) -> None:
        """Write the record.

        Raises:
            WorkspaceError: The file cannot be written.
        """
        write_record(self.path, record)

    def _is_free(self) -> bool:
        """Whether nothing is lost by writing: no file, an empty file, or --force is given."""
        try:
            return self.force or not self.path.exists() or self.path.stat().st_size == 0
        except OSError:
            return False  # Reading the file then reports the error.
