"""Pydantic's findings about untrusted data in one line: `first_fault`."""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(error: ValidationError, whole: str = "the file") -> str:
    """Describe the first fault as `devices.3.kind: ...`, with the number of further faults.

    Args:
        error: Pydantic's error.
        whole: Name of the data, for a fault that is not in one of its fields.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    path = ".".join(map(str, faults[0]["loc"])) or whole
    message = faults[0]["msg"].removeprefix("Value error, ")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return " ".join(f"{path}: {message}{more}".split())
