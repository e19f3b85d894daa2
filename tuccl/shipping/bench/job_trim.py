"""A table without what slows a user's own job down.

The job runs in rounds with some parts of the table and with all others, which shows what each part
does to it. What is left then runs in turn with stock NCCL, as by `tuccl workload bench`, and is
shipped where it is not slower. Of a table of one part the rounds have told that already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.table import Table
from tuccl.errors import UsageError
from tuccl.quantities import count_of
from tuccl.reports.json_form import fields_of
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE, without_executor
from tuccl.search.statistics.screening import begins_with_first_half, rounds_for, signs_of_rounds
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.job_parts import (
    PROFILE,
    JobPart,
    PartRound,
    TrimResult,
    job_parts,
    part_effects,
    parts_in,
    with_parts,
)
from tuccl.shipping.bench.job_runs import (
    JobLogs,
    JobRuns,
    UserJob,
    Variant,
    bench_rounds,
    table_variant,
)
from tuccl.shipping.bench.own_job import WITHOUT, job_bench_result
from tuccl.shipping.bench.surroundings import CRC_VARIABLE, ENVIRONMENT_VARIABLE
from tuccl.shipping.forms import Form
from tuccl.shipping.locating import bundle_name
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.shipping.rollback import source_of
from tuccl.shipping.shipment import (
    ShippedSource,
    check_target,
    forms_and_place,
    render,
    ship_source,
)
from tuccl.shipping.shipped_directory import Machine, check_can_be_shipped_to, look_at
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.versions import Origin, utc_now, versions_of
from tuccl.workspace.atomic_file import absolute, write_atomically

_ROUNDS = 8


@dataclass(frozen=True)
class Trim:
    """A table whose parts are tried in a job."""

    job: UserJob
    shipped: ShippedTable
    logs: JobLogs
    rounds: int
    """Rounds of what is left and of stock NCCL, in turn."""
    part_rounds: int | None
    """Least rounds that tell the parts apart; None: 8."""
    target: Path | None
    """Directory that the rest is shipped to; None: it is not shipped."""
    say: Callable[[str], None]
    """Called with each line on a run."""

    def run(self) -> TrimResult:
        """Find out what to leave out, and bench the rest.

        Raises:
            UsageError: The table has no entries, or its directory lacks its table or manifest.
            MeasurementError: A run of the job failed.
        """
        source = self._source()
        self._check_target(source)
        parts = job_parts(source.table)
        if not parts:
            raise UsageError(f"{self.shipped.name} has no entries: there is nothing to leave out")
        count = rounds_for(len(parts), self.part_rounds or _ROUNDS)
        runs = self._runs(count, "parts round")
        rounds = self._part_rounds(runs, source.table, parts)
        effects = part_effects(parts, rounds, self.job.figure)
        kept = tuple(each.part for each in effects if not each.left_out)
        is_part = 0 < len(kept) < len(parts)
        if len(parts) == 1:
            done = tuple(each.as_job_round for each in rounds)
        else:
            rest = self._variant(source.table, kept or parts)
            runs = self._runs(self.rounds, "round")
            done = bench_rounds(runs, replace(rest, name="with the rest") if is_part else rest)
        job = self.job
        benched = job_bench_result(
            job.command, self.shipped, job.figure, done, None, load_seen=runs.load_seen
        )
        return TrimResult(
            **fields_of(benched), parts=effects, part_rounds=tuple(rounds), shipped=None
        )

    def ship(self, result: TrimResult) -> TrimResult:
        """Ship what is left to the target, unless it is there already or slows the job down.

        Raises:
            TucclError: The directory cannot be written.
        """
        target, source = self.target, self._source()
        if target is None or result.slower or result.is_nothing_left:
            return result
        if not result.left_out and absolute(target) == self.shipped.directory:
            return result
        if result.is_part:
            source = _without(source, [each.part for each in result.parts if not each.left_out])
        origin = Origin(utc_now(), self._run(), None)
        done = ship_source(source, origin, target, forms=_forms_of(self.shipped.directory))
        return replace(result, shipped=target, caveats=done.caveats)

    def _source(self) -> ShippedSource:
        directory = self.shipped.directory
        manifest = read_manifest(directory)
        if manifest is None:
            raise UsageError(
                f"{directory / MANIFEST_NAME} is missing or of another release, and says what was "
                "measured; `tuccl ship` there again"
            )
        if problems := view_shipped(directory).problems:
            raise UsageError(f"{self.shipped.name}: {problems[0]}; `tuccl ship` there again")
        return source_of(directory, manifest, self.shipped.name)

    def _check_target(self, source: ShippedSource) -> None:
        """Refuse a directory that could not be shipped to before the job takes its time."""
        if self.target is not None:
            target = absolute(self.target)
            check_target(target, None)
            forms = _forms_of(self.shipped.directory)
            render(source, target, *forms_and_place(target, forms, None))
            machine = Machine(source.table.topology_name, source.table.fingerprint)
            check_can_be_shipped_to(look_at(target), machine, force=False)

    def _runs(self, rounds: int, prefix: str) -> JobRuns:
        return JobRuns(self.job, self.logs, self.shipped.directory, rounds, self.say, prefix)

    def _part_rounds(
        self, runs: JobRuns, table: Table, parts: tuple[JobPart, ...]
    ) -> list[PartRound]:
        then = f", then {self.rounds} rounds of what is left" if len(parts) > 1 else ""
        self.say(f"{count_of(len(parts), 'part')} of the table in {runs.rounds} rounds{then}")
        done = []
        for number, signs in enumerate(signs_of_rounds(len(parts), runs.rounds)):
            halves = {half: self._variant(table, parts_in(parts, signs, half)) for half in (1, -1)}
            order = (1, -1) if begins_with_first_half(number, len(parts)) else (-1, 1)
            found = {
                half: runs.start(number + 1, halves[half], "first" if half == 1 else "second")
                for half in order
            }
            first = tuple(number for number, sign in enumerate(signs) if sign == 1)
            done.append(PartRound(first, found[1], found[-1]))
        return done

    def _variant(self, table: Table, kept: Collection[JobPart]) -> Variant:
        """Return the variables of some parts; their bundle lies beside the logs."""
        part = with_parts(table, kept)
        if part == table:
            return table_variant(self.shipped)
        if not kept:
            return Variant(WITHOUT, {})
        bundle = bundle_bytes(part)
        crc = bundle_crc(bundle)
        path = self.logs.directory / bundle_name(crc)
        write_atomically(path, bundle)
        left_out = {ENVIRONMENT_VARIABLE, *(table.profile.keys() - part.profile.keys())}
        own = {key: text for key, text in self.shipped.variables.items() if key not in left_out}
        if not part.schedules:
            own[PRELOAD_VARIABLE] = without_executor(own.get(PRELOAD_VARIABLE, ""))
            own |= part.profile  # All of it is the process's then.
        own |= {BUNDLE_VARIABLE: str(path), CRC_VARIABLE: f"{crc:08x}"}
        return Variant(f"with {'; '.join(map(str, kept))}", own)

    def _run(self) -> str | None:
        """Return the directory of the run that the table comes from."""
        crc = f"{self.shipped.bundle.crc:08x}"
        versions = versions_of(self.shipped.directory)
        return next((each.origin.run for each in versions if each.crc == crc), None)


def _forms_of(directory: Path) -> tuple[Form, ...]:
    """Return the forms that a directory has beside `tuccl.env`."""
    return forms_and_place(directory, (), None)[0]


def _without(source: ShippedSource, kept: Collection[JobPart]) -> ShippedSource:
    """Return a table with these parts alone; what it gains a step is not predicted."""
    lost_profile = bool(source.table.profile) and PROFILE not in kept
    return replace(
        source,
        table=with_parts(source.table, kept),
        step=None,
        lost_profile=lost_profile or source.lost_profile,
    )
