"""Checks of the variables that NCCL would see: what overrules the table, and where it is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tuccl.measuring.engines.nccl_environment import configuration_files, configuration_lines
from tuccl.measuring.engines.nccl_variables import OVERRULING, PER_PROCESS
from tuccl.shipping.doctor.findings import Finding, error, note, ok, warning
from tuccl.shipping.doctor.job_view import JobView

_OF_INTEREST = ("NCCL_", "TUCCL_")


def check_variables(job: JobView) -> Iterator[Finding]:
    """Check for variables that overrule the table, or differ from what it was measured with."""
    profile = {} if job.bundle is None else dict(job.bundle.profile)
    found = [
        *(_overruling(job, name) for name in OVERRULING if job.value(name)),
        *(
            finding
            for name in dict.fromkeys([*profile, *PER_PROCESS])
            if (finding := _profile_finding(job, name, profile.get(name))) is not None
        ),
    ]
    yield from found
    if not found and job.bundle is not None:
        yield ok("variables", "no variable overrules the table, and its process profile is set")


def _overruling(job: JobView, name: str) -> Finding:
    return error(
        "variables",
        f"{name}={job.value(name):.60} is set in {job.place(name)}, which overrules any table",
        _unset(job, name),
    )


def _profile_finding(job: JobView, name: str, wanted: str | None) -> Finding | None:
    """Return a finding on a variable that NCCL reads once per process; None: it is right."""
    set_to = job.value(name)
    if set_to == (wanted or ""):
        return None
    if not set_to:
        return warning(
            "variables",
            f"{name} is not set, and the table was measured with {name}={wanted}",
            f"export {name}={wanted}",
        )
    measured = f"with {name}={wanted}" if wanted is not None else "without it"
    mend = f"export {name}={wanted}" if wanted is not None else _unset(job, name)
    return warning(
        "variables",
        f"{name}={set_to:.60} is set in {job.place(name)}, and the table was measured {measured}",
        mend,
    )


def _unset(job: JobView, name: str) -> str:
    if name in job.environment:
        return f"unset {name}"
    return f"remove the line {name}= from {job.place(name)}"


def check_configuration(job: JobView) -> Iterator[Finding]:
    """Check the files from which NCCL takes variables that the environment lacks."""
    named = job.environment.get("NCCL_CONF_FILE")
    if named and not Path(named).is_file():
        yield warning(
            "conf files",
            f"NCCL_CONF_FILE names {named}, which is no file: NCCL goes on without",
            "unset NCCL_CONF_FILE, or ship the form again: tuccl ship DIR --to nccl-conf",
        )
    for path in configuration_files(job.environment):
        names = [name for name, _ in configuration_lines(path) if name.startswith(_OF_INTEREST)]
        if names:
            used = [name for name in names if job.place(name) == str(path)]
            what = f"gives {', '.join(used)}" if used else "is overruled by the environment"
            yield note("conf files", f"{path} {what}")
