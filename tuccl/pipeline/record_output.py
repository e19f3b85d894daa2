"""`--record FILE`: where a run's record goes, and what it must not replace.

A record is hours of GPUs, so a file that is there stays unless it is this very run's record. That
much is known only once the machine is; what is no record at all is refused before anything starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import UsageError
from tuccl.inputs.output_file import check_output
from tuccl.inputs.run_options import RunOptions
from tuccl.records.errors import RecordFileError
from tuccl.records.grid_csv import files_of
from tuccl.records.record import Record
from tuccl.records.record_file import run_of_record, write_record
from tuccl.workspace.atomic_file import require_room


@dataclass(frozen=True, slots=True)
class RecordOutput:
    """The file that a run's record is to be written to."""

    path: Path
    force: bool = False
    """Whether it may replace any file."""

    def check(self, options: RunOptions) -> None:
        """Before anything is probed or measured: refuse what cannot be meant.

        Raises:
            UsageError: It is read by this run, a directory, or a file that is no record.
            WorkspaceError: It cannot be written.
        """
        records = () if options.records is None else files_of(Path(options.records))
        check_output(self.path, "--record", (*records, options.topology, options.model))
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"--record {self.path} is a device or pipe: name a file")
        if not self._is_free():
            try:
                run_of_record(self.path)
            except RecordFileError as error:
                raise UsageError(
                    f"--record {self.path} is there already and is no record that this release "
                    "reads; name another file, or add --force to replace it"
                ) from error
        require_room(self.path)

    def check_run(self, identity: str) -> None:
        """Before anything is measured: refuse the record of another run.

        Raises:
            UsageError: It is one.
            RecordFileError: It has become something else since `check`.
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
        """Whether there is nothing to lose: no file, an empty one, or whatever --force gives up."""
        try:
            return self.force or not self.path.exists() or self.path.stat().st_size == 0
        except OSError:
            return False  # Whoever reads it says why it cannot.
