"""Results as JSON, on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel


def print_json(document: Mapping[str, Any], schema_version: int) -> None:
    """Print a document with the version of its form.

    Raises:
        ValueError: A figure is not a number of JSON.
    """
    versioned = {"schema_version": schema_version, **document}
    sys.stdout.write(json.dumps(versioned, indent=1, allow_nan=False) + "\n")


def print_document(document: BaseModel) -> None:
    """Print a document of `tuccl.reports.documents`.

    Raises:
        ValueError: A figure is not a number of JSON.
    """
    written = document.model_dump(mode="json")
    print_json(written, int(written.pop("schema_version")))
