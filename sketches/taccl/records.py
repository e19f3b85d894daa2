"""Common parts of TACCL's two file formats: JSON objects, checked key by key.

Both formats are those of microsoft/taccl 426bd1e: INPUT_GUIDE.md, taccl/cli/common.py and
taccl/topologies/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuccl.errors import MachineError

MOST_PER_NODE = 512
"""Most GPUs or NICs of one node."""

Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Beta = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Record(BaseModel):
    """Base of the records; unknown keys, which TACCL ignores, are noted and not refused."""

    model_config = ConfigDict(extra="allow")


_AnyRecord = TypeVar("_AnyRecord", bound=Record)


def is_taccl_topology(text: str) -> bool:
    """Return whether a text is a JSON object with the keys that mark TACCL's topology files."""
    return {"gpus_per_node", "alpha"} <= _keys(text)


def is_taccl_sketch(text: str) -> bool:
    """Return whether a text is a JSON object with the key that marks TACCL's sketch files."""
    return "intranode_sketch" in _keys(text)


def validated(kind: type[_AnyRecord], text: str, source: str) -> _AnyRecord:
    """Return the record in a text.

    Raises:
        MachineError: The text is not of this format; file and field are named.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        # For unions pydantic also names the alternative that it tried, in brackets; no key has one.
        keys = [str(key) for key in first["loc"] if "[" not in str(key)]
        place = ".".join(keys) or "the whole file"
        raise MachineError(f"{source}: {place}: {first['msg']}; correct the file") from None


def unknown_keys(*records: Record | None) -> Iterator[str]:
    """Yield a note on keys that TACCL does not know, if there are any."""
    extra: list[str] = [key for record in records if record for key in record.model_extra or {}]
    if extra:
        yield f"keys that TACCL does not know are passed over: {', '.join(sorted(extra))!a:.200}"


def _keys(text: str) -> set[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return set()
    return set(document) if isinstance(document, dict) else set()
