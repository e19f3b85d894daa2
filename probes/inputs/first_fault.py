"""What pydantic found wrong with data from outside, in the words of one line."""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(error: ValidationError, whole: str = "the file") -> str:
    """The first fault as `devices.3.kind: ...`, and how many more there are.

    Args:
        error: What pydantic raised.
        whole: How to call the data where the fault is not in one of its fields.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    path = ".".join(map(str, faults[0]["loc"])) or whole
    message = faults[0]["msg"].removeprefix("Value error, ")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return " ".join(f"{path}: {message}{more}".split())
