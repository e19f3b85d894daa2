"""What TACCL's two file forms have in common: JSON objects, checked key by key.

Facts about both forms are from microsoft/taccl 426bd1e: INPUT_GUIDE.md, taccl/cli/common.py and
taccl/topologies/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sketches.errors import TacclFileError

MOST_PER_NODE = 512
"""GPUs or NICs of one node."""

Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Beta = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Record(BaseModel):
    """TACCL reads keys by name and passes over others, so others are noted and not refused."""

    model_config = ConfigDict(extra="allow")


_AnyRecord = TypeVar("_AnyRecord", bound=Record)


def is_taccl_topology(text: str) -> bool:
    """Whether a text is a JSON object with the keys that only TACCL's topology files have."""
    return {"gpus_per_node", "alpha"} <= _keys(text)


def is_taccl_sketch(text: str) -> bool:
    """Whether a text is a JSON object with a key that only TACCL's sketch files have."""
    return "intranode_sketch" in _keys(text)


def validated(kind: type[_AnyRecord], text: str, source: str) -> _AnyRecord:
    """The record in a text.

    Raises:
        TacclFileError: It is not of this form; file and field are named.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        # Of alternatives pydantic also names the one that it tried; no key has a bracket.
        parts = [str(part) for part in first["loc"] if "[" not in str(part)]
        place = ".".join(parts) or "the whole file"
        raise TacclFileError(f"{source}: {place}: {first['msg']}; correct the file") from None


def unknown_keys(*records: Record | None) -> Iterator[str]:
    """A note on keys that mean nothing to TACCL, if there are any."""
    extra: list[str] = [key for one in records if one for key in one.model_extra or {}]
    if extra:
        yield f"keys that TACCL does not know are passed over: {', '.join(sorted(extra))!a:.200}"


def _keys(text: str) -> set[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return set()
    return set(document) if isinstance(document, dict) else set()
