"""Results as JSON, on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def print_json(document: Mapping[str, Any], schema_version: int) -> None:
    """Print a document with the version of its form.

    Raises:
        ValueError: A figure is not a number of JSON.
    """
    versioned = {"schema_version": schema_version, **document}
    sys.stdout.write(json.dumps(versioned, indent=1, allow_nan=False) + "\n")


def print_document(result: object) -> None:
    """Print a result, a frozen dataclass.

    Raises:
        ValueError: A figure is not a number of JSON.
    """
    from tuccl.reports.json_form import json_of  # noqa: PLC0415 - for JSON

    sys.stdout.write(json.dumps(json_of(result), indent=1, allow_nan=False) + "\n")


def print_either(result: _Result, as_json: bool, print_text: Callable[[_Result], None]) -> None:
    """Print a result, a frozen dataclass, as JSON or for people."""
    if as_json:
        print_document(result)
    else:
        print_text(result)
