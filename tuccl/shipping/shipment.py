"""`tuccl ship`: everything a job needs in one directory.

    bundle-CRC.tuccl           the table as the plugin maps it, named by its checksum
    libnccl-tuner-tuccl.so     the plugin
    libtuccl-executor.so       the executor, where it can run schedules that won and this
                               installation has it
    libtuccl-nccl.so           the executor and NCCL behind one handle of dlopen
    tuccl.env                  what a job sources, with comments
    tuccl-CRC.env              the same, of this table for good
    table.parquet              the same table for people and pandas
    machine.json               the machine that the table is for
    schedules/                 the schedules that won inside a node, as MSCCL XML
    tuccl.envfile, nccl.conf, slurm-task-prolog.sh, enroot/, kubernetes/
                               the forms of `--to`
    tuccl-manifest.json        what the table is, and which of these files there are, with sums
    versions/                  the tables that were shipped here, each whole; see `versions`

A directory that jobs are using can be shipped to again: a new table is a new bundle file, and
`tuccl.env`, replaced after all that it names, is what points at it. What only the table before had
is removed after that, but for bundle and executor, which a job may have sourced. The manifest comes
last. Killed at any point, a ship leaves the one table or the other, and the next ship completes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import NO_FACTS, BundleFacts, HostDevices
from lookup_tables.collective import Collective
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Shape, Table
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tuccl import __version__
from tuccl.errors import MachineError, NcclLibraryError, TableError, UsageError, WorkspaceError
from tuccl.measuring.engines.nccl_library import LIBRARY_NAME, find_nccl
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.host_record import HostRecord, read_host_record
from tuccl.reports.job_gains import Obstacle, job_gains, obstacle_to
from tuccl.reports.report import Report, read_report
from tuccl.reports.step_gain import StepSummary, step_of
from tuccl.reports.table_parts import measured_nccl, parts_of, tuning_times
from tuccl.reports.tuning_result import read_machine, read_table
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME, executor_path, has_executor, plugin_path
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME, calling_library
from tuccl.search.trials.timing import Computation
from tuccl.shipping.environment_file import ShippedExecutor, bound_name, environment_file
from tuccl.shipping.forms import EXECUTABLE, OPENED_NAME, PATHS_OF, Form, form_files
from tuccl.shipping.host_facts import hosts_as_shown, hosts_of
from tuccl.shipping.job_settings import JobSettings
from tuccl.shipping.locating import bundle_name
from tuccl.shipping.manifest import (
    MANIFEST_NAME,
    PROFILE_LEFT_OUT,
    MachineSize,
    ManifestDocument,
    TunedSizes,
    listed_files,
    manifest_text,
    read_manifest,
)
from tuccl.shipping.shipped_directory import (
    MACHINE_NAME,
    SCHEDULES_NAME,
    TABLE_NAME,
    Machine,
    ShippedDirectory,
    check_can_be_shipped_to,
    check_places,
    form_tables,
    held,
    look_at,
    remove_old_files,
    remove_partial_files,
)
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.shipping.versions import (
    Origin,
    drop_old_versions,
    keep_version,
    utc_now,
)
from tuccl.workspace.atomic_file import absolute, cannot_write, write_atomically
from tuccl.workspace.runs import Run


@dataclass(frozen=True, slots=True)
class ShippedSource:
    """A table with what is shipped beside it: of a run, a version, or a part of one."""

    table: Table
    evidence: Evidence
    """Evidence behind its times."""
    machine: MachineSize | None
    machine_file: bytes | None
    """The machine as its run keeps it; None: unknown."""
    plugin: bytes
    library: Path | None
    """The executor, if there is one."""
    graphs: bool | None
    in_place: bool | None
    computations: tuple[Computation, ...]
    host: HostRecord | None
    keys: list[TunedSizes]
    """All keys that were tuned, with and without an entry; empty: unknown."""
    step: StepSummary | None
    """Gain of a step, where the table was tuned for a workload."""
    lost_profile: bool = False
    """Whether the process profile of its times is left out."""
    assumed: str = ""
    """See `Report.assumed`."""
    base: Mapping[str, str] | None = None
    """See `Report.base`."""
    facts: BundleFacts = NO_FACTS
    """What the bundle says of the machine and of `base`."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The files of a table for one directory."""

    table: Table
    crc: int
    """Checksum of the bundle."""
    contents: Mapping[str, bytes]
    """Files by path, in the order in which they are written; `tuccl.env` last."""
    manifest: str
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shipped:
    """`ship`: the content of the shipped directory."""

    files: tuple[Path, ...]
    """Files that were written, `tuccl.env` last."""
    caveats: tuple[str, ...]
    """Reasons not to rely on the table, and why the executor is not loaded."""
    topology: str
    """Name of the machine that the table is for."""
    entries: int
    gain: float | None
    """Speedup of a job over stock NCCL, geometric mean over the run's keys; None: unknown."""
    tuned_at: str | None
    """When its last entry was tuned: ISO 8601, UTC; None: it has no entry, or does not say."""
    run: str | None
    """Directory of its run; None: unknown."""


def ship(
    run: Run,
    directory: Path,
    *,
    force: bool = False,
    forms: Sequence[Form] = (),
    place: Path | None = None,
) -> Shipped:
    """Write the directory; each file is replaced atomically.

    Args:
        run: Run that has the table.
        directory: New or empty directory, or one of an earlier ship.
        force: Ship even beside other files, which stay, or over another machine's table.
        forms: Forms beside `tuccl.env`; those of an earlier ship are renewed in any case.
        place: Where jobs find the directory; None: as an earlier ship said, else at `directory`.

    Raises:
        UsageError: `directory` is a file, has control characters in its name, or a space or colon
            where the executor is shipped, or holds other files or another machine's table; or the
            place cannot stand in a form.
        WorkspaceError: Another process ships there; the run has no table, or the directory cannot
            be written.
        HostError: This installation has no plugin.
    """
    source, origin = _source_of(run)
    return ship_source(source, origin, directory, force=force, forms=forms, place=place)


def ship_source(
    source: ShippedSource,
    origin: Origin,
    directory: Path,
    *,
    force: bool = False,
    forms: Sequence[Form] = (),
    place: Path | None = None,
) -> Shipped:
    """Write the directory of a table that need not be a run's, as `ship` does.

    Raises:
        UsageError: As for `ship`.
        WorkspaceError: Another process ships there, or the directory cannot be written.
    """
    target = absolute(directory)
    check_target(target, place)
    if not target.exists():  # A refusal leaves no directory behind.
        render(source, target, *forms_and_place(target, forms, place))
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(target, error) from error
    with held(target):  # Another ship may have added forms or changed the place until now.
        rendered = render(source, target, *forms_and_place(target, forms, place))
        return replace_table(target, rendered, origin, force=force)


def render(
    source: ShippedSource, target: Path, wanted: Sequence[Form], named: Path | None
) -> Rendered:
    """Return the files of a table for a directory; nothing is written.

    Args:
        source: The table and its libraries.
        target: The directory.
        wanted: Forms beside `tuccl.env`.
        named: Where jobs find the directory; None: at `target`.

    Raises:
        UsageError: The place cannot stand in a form, or in LD_PRELOAD where the executor is
            shipped.
    """
    table, evidence = source.table, source.evidence
    bundle = bundle_bytes(table, source.facts)
    crc = bundle_crc(bundle)
    executor = shipped_executor(table, evidence, source.library)
    at = named or target
    _check_preload_path((target, at), executor)
    loads_executor = executor is not None and executor.obstacle is None
    settings = JobSettings(
        table.topology_name, table.fingerprint, crc, at, target, measured_nccl(table),
        loads_executor, table.profile, table.settings,
    )  # fmt: skip
    opened, lacking = _opened_library(executor) if Form.DLOPEN in wanted else (None, "")
    plain = [form for form in wanted if form is not Form.KUBERNETES]
    files = {name: text for form in plain for name, text in form_files(form, settings).items()}
    note = " ".join(_notes(source))
    environment = environment_file(
        table, target, crc, note, executor, at, lost_profile=source.lost_profile, base=source.base
    )
    contents = {
        bundle_name(crc): bundle,
        PLUGIN_NAME: source.plugin,
        **_library_of(executor),
        **({OPENED_NAME: opened} if opened is not None else {}),
        **{
            f"{SCHEDULES_NAME}/{schedule.content_hash}.xml": schedule.msccl_xml.encode()
            for schedule in table.schedules
            if schedule.msccl_xml
        },
        TABLE_NAME: table_to_parquet_bytes(table),
        **({} if source.machine_file is None else {MACHINE_NAME: source.machine_file}),
        bound_name(crc): environment.encode(errors="surrogateescape"),
        **{name: text.encode(errors="surrogateescape") for name, text in files.items()},
    }
    if Form.KUBERNETES in wanted:
        of_image = replace(settings, files_crc=_sum_of_files(contents))
        for name, text in form_files(Form.KUBERNETES, of_image).items():
            contents[name] = text.encode()
    contents[ENVIRONMENT_NAME] = contents[bound_name(crc)]
    caveats = (*_caveats(source, executor), *([lacking] if lacking else []))
    tuned = tuning_times(table) or (None, None)
    manifest = ManifestDocument(
        tuccl=__version__,
        topology_name=table.topology_name,
        fingerprint=table.fingerprint,
        machine=source.machine,
        gpu_models=list(table.gpu_models),
        nccl=measured_nccl(table) or None,
        times=evidence,
        tuned_from=tuned[0],
        tuned_to=tuned[1],
        profile=dict(table.profile),
        base=None if source.base is None else dict(source.base),
        shapes=sorted({entry.key.shape for entry in table.all_entries}),
        sums=list(table.sums),
        parts=list(parts_of(table)),
        keys=source.keys,
        step=source.step,
        caveats=list(caveats),
        assumed=source.assumed,
        bundle_crc=f"{crc:08x}",
        executor=loads_executor,
        forms=list(wanted),
        place=None if named is None else str(named),
        graphs=source.graphs,
        in_place=source.in_place,
        computations=source.computations,
        host=_accepted_host(target, crc) or source.host,
        files=listed_files(contents),
    )
    return Rendered(table, crc, contents, manifest_text(manifest), caveats)


def _sum_of_files(contents: Mapping[str, bytes]) -> int:
    """Return a checksum of files and their paths."""
    crc = 0
    for name in sorted(contents):
        crc = crc32(contents[name], crc32(f"{name} {len(contents[name])}\n".encode(), crc))
    return crc


def replace_table(target: Path, rendered: Rendered, origin: Origin, *, force: bool) -> Shipped:
    """Make a table the current one of a directory that is locked; former ones stay as versions.

    The version is written first, so that a full disk or a kill leaves the current table as it is.

    Raises:
        UsageError: The directory holds other files or another machine's table.
        WorkspaceError: The directory cannot be written.
    """
    table, contents = rendered.table, rendered.contents
    found = look_at(target)
    check_can_be_shipped_to(found, Machine(table.topology_name, table.fingerprint), force=force)
    check_places([target / name for name in (*contents, MANIFEST_NAME)])
    remove_partial_files(target)
    keep_version(target, f"{rendered.crc:08x}", contents, rendered.manifest, origin)
    make_current(found, contents, rendered.manifest)
    drop_old_versions(target)
    *others, last = contents
    files = tuple(target / name for name in (*others, MANIFEST_NAME, last))
    _, tuned_at = tuning_times(table) or (None, None)
    return Shipped(
        files,
        rendered.caveats,
        table.topology_name,
        len(table.all_entries),
        origin.gain,
        tuned_at,
        origin.run,
    )


def make_current(found: ShippedDirectory, contents: Mapping[str, bytes], manifest: str) -> None:
    """Write the files in their order, remove schedules of earlier tables, write the manifest."""
    for name, content in contents.items():
        mode = 0o755 if name in EXECUTABLE else 0o644
        write_atomically(found.path / name, content, mode=mode)
    remove_old_files(found, contents)
    write_atomically(found.path / MANIFEST_NAME, manifest)


def _source_of(run: Run) -> tuple[ShippedSource, Origin]:
    """Return the table of a run with this installation's libraries, and its origin."""
    plugin = plugin_path().read_bytes()
    table, report = _checked_table(run), read_report(run)
    evidence = evidence_of(table, report.source)
    library = executor_path() if has_executor() else None
    gains = job_gains(table, report, has_executor=library is not None)
    origin = Origin(utc_now(), str(absolute(run.root)), gains.speedup)
    machine, host = _machine_of(run), read_host_record(run.host)
    executor = shipped_executor(table, evidence, library)
    source = ShippedSource(
        table,
        evidence,
        None if machine is None else MachineSize(gpus=len(machine.gpus), nodes=machine.node_count),
        None if machine is None else topology_to_json(machine).encode(),
        plugin,
        library,
        report.graphs,
        report.in_place,
        report.computations,
        host,
        _tuned_sizes(report),
        _step(table, report, executor is not None and executor.obstacle is None),
        assumed=report.assumed,
        base=report.base,
        facts=BundleFacts(_hosts(machine, host), report.base),
    )
    return source, origin


def _hosts(machine: Topology | None, measured: HostRecord | None) -> tuple[HostDevices, ...]:
    if machine is None:
        return ()
    try:
        shown = None if measured is None else next(iter(hosts_of(measured.topology())), None)
    except MachineError:
        shown = None
    return hosts_as_shown(hosts_of(machine), shown)


def check_target(target: Path, place: Path | None) -> None:
    """Require a path that shell files can hold, and that is no file.

    Raises:
        UsageError: It has control characters, or is a file; or the place is no absolute path.
    """
    for path in (target, place):
        if path is not None and not str(path).isprintable():
            raise UsageError(
                f"the directory {str(path)!r} cannot stand in a shell file; use a printable name"
            )
    if place is not None and not place.is_absolute():
        raise UsageError(
            f"--at {place} is not an absolute path: name where jobs find the directory"
        )
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file: name a directory to ship to")


def forms_and_place(
    target: Path, forms: Sequence[Form], place: Path | None
) -> tuple[tuple[Form, ...], Path | None]:
    """Return the forms to write, with those of an earlier ship, and the place that was named.

    A ship that was killed left its forms without a manifest that lists them.
    """
    earlier, lying = read_manifest(target), form_tables(target)
    known = [form for form in Form if not lying.keys().isdisjoint(PATHS_OF[form])]
    if earlier is not None:
        known += [Form(name) for name in earlier.forms if name in set(Form)]
        if place is None and earlier.place is not None:
            place = Path(earlier.place)
    return tuple(sorted({*known, *forms})), place


def _caveats(source: ShippedSource, executor: ShippedExecutor | None) -> tuple[str, ...]:
    """Return reasons not to rely on the table, and why the executor is not loaded."""
    if executor is None or executor.obstacle is None:
        return _notes(source)
    return (*_notes(source), f"no executor: {executor.obstacle.sentence}")


def _notes(source: ShippedSource) -> tuple[str, ...]:
    """Return reasons not to rely on the times."""
    profile = PROFILE_LEFT_OUT if source.lost_profile else ""
    return tuple(filter(None, (source.evidence.caveat, source.assumed, profile)))


def _step(table: Table, report: Report, loads_executor: bool) -> StepSummary | None:
    """Return the gain of a step of the run's workload, as the shipped files run it."""
    step = step_of(report, job_gains(table, report, has_executor=loads_executor))
    return None if step is None else step.summary


def _machine_of(run: Run) -> Topology | None:
    """Return the machine of a run; None where the run does not keep one that can be read."""
    try:
        return read_machine(run)
    except WorkspaceError:
        return None


def _accepted_host(target: Path, crc: int) -> HostRecord | None:
    """Return the host in the manifest of the same table, which `tuccl watch` may have renewed."""
    earlier = read_manifest(target)
    return earlier.host if earlier is not None and earlier.bundle_crc == f"{crc:08x}" else None


def _tuned_sizes(report: Report) -> list[TunedSizes]:
    sizes: dict[tuple[Collective, Shape], list[int]] = {}
    for key in report.keys:
        sizes.setdefault((key.operation, key.shape), []).append(key.size_bytes)
    return [
        TunedSizes(operation=operation, shape=shape, sizes_bytes=sorted(set(own)))
        for (operation, shape), own in sizes.items()
    ]


def _checked_table(run: Run) -> Table:
    """Return the table of a run after checking its programs, which jobs will run.

    Raises:
        WorkspaceError: There is none, or it is damaged.
    """
    # What `tuccl table` imports too needs no compiler there.
    from synthesizer.programs.compiler import check_programs  # noqa: PLC0415

    table = read_table(run)
    try:
        check_programs(table.schedules, str(run.table))
    except TableError as error:
        raise WorkspaceError(str(error)) from error
    return table


def _check_preload_path(paths: Iterable[Path], executor: ShippedExecutor | None) -> None:
    """Require paths that LD_PRELOAD can hold.

    Raises:
        UsageError: The loader would split the path.
    """
    if executor is None or executor.library is None:
        return
    # ld.so(8): LD_PRELOAD is split at spaces and colons, and nothing quotes them.
    for path in paths:
        if any(character in str(path) for character in " :"):
            raise UsageError(
                f"{str(path)!a} has a space or colon, at which LD_PRELOAD is split, and the "
                "executor is to be loaded from there; name a directory without"
            )


def shipped_executor(
    table: Table, evidence: Evidence, library: Path | None
) -> ShippedExecutor | None:
    """Return how the executor is shipped; None where no schedule won.

    Args:
        table: Table that is shipped.
        evidence: Evidence behind its times.
        library: The executor of this installation, if it has one.
    """
    obstacles = {
        obstacle_to(entry, table, evidence, has_executor=library is not None)
        for entry in table.entries
        if entry.schedule is not None
    }
    if not obstacles:
        return None
    if None in obstacles:
        return ShippedExecutor(library, None)
    # The one that the user can do something about, if there is one.
    obstacle = [each for each in Obstacle if each in obstacles][-1]
    return ShippedExecutor(None if obstacle.is_final else library, obstacle)


def _library_of(executor: ShippedExecutor | None) -> dict[str, bytes]:
    """Return the executor, if it is shipped, and the library by which handles find it."""
    if executor is None or executor.library is None:
        return {}
    library = executor.library.read_bytes()
    found = {EXECUTOR_NAME: library}
    with suppress(ValueError):  # A file that is no library; `tuccl.env` tries it before it loads.
        found[CALLING_LIBRARY_NAME] = calling_library(library)
    return found


def _opened_library(executor: ShippedExecutor | None) -> tuple[bytes | None, str]:
    """Return the library that stands for NCCL by its name, or why there is none.

    It needs NCCL by its path: by name it would need itself.
    """
    if executor is None or executor.library is None or executor.obstacle is not None:
        return None, f"no {OPENED_NAME}: the table is shipped without the executor"
    try:
        nccl = absolute(find_nccl().path)
    except NcclLibraryError as failure:
        return None, f"no {OPENED_NAME}: which NCCL a job loads is not known: {failure}"
    needed = (f"$ORIGIN/../{EXECUTOR_NAME}", str(nccl))
    try:
        return calling_library(executor.library.read_bytes(), LIBRARY_NAME, needed), ""
    except ValueError as fault:
        return None, f"no {OPENED_NAME}: {executor.library} is {fault}"
