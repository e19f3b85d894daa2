"""`print_json`: what a command found, for machines, on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_json(document: Mapping[str, Any], schema_version: int) -> None:
    """Print a document with the version of its form.

    Raises:
        ValueError: A figure is no number that JSON has.
    """
    versioned = {"schema_version": schema_version, **document}
    sys.stdout.write(json.dumps(versioned, indent=1, allow_nan=False) + "\n")
