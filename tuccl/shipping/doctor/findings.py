"""`Finding`: one thing that speaks for or against a job's loading its table, with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The weight of a finding."""

    OK = "ok"
    """As it should be."""
    NOTE = "note"
    """Worth knowing, or not known here."""
    WARNING = "warning"
    """The job loads the table, but gets less from it, or may lose it."""
    ERROR = "error"
    """The job does not load the table, does not follow it, or does not start."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of one check."""

    check: str
    """Short name of the check."""
    severity: Severity
    text: str
    """The finding, one sentence."""
    mend: str = ""
    """The line that mends it; empty where nothing is to be done."""


def ok(check: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, Severity.OK, text)


def note(check: str, text: str, mend: str = "") -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(check, Severity.NOTE, text, mend)


def warning(check: str, text: str, mend: str) -> Finding:
    """Return a finding that costs the job something."""
    return Finding(check, Severity.WARNING, text, mend)


def error(check: str, text: str, mend: str) -> Finding:
    """Return a finding that keeps the job from its table."""
    return Finding(check, Severity.ERROR, text, mend)
