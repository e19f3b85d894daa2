"""The arguments that PyTorch's profiler gives a collective, on the CPU's event and the kernel's."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

from tuccl.quantities import MAX_SIZE_BYTES
from tuccl.workloads.recordings.observed_calls import CallForm
from tuccl.workloads.workload import Datatype

CallKind = tuple[Hashable, int, CallForm]
"""Group, ranks and form of calls that are alike."""
_IN_PLACE = {"allreduce": True, "broadcast": True, "reduce": True}
"""Collectives whose PyTorch call has one tensor for input and output."""
_OPERATIONS = {
    "allreduce": "all_reduce",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all": "alltoall",
    "all_to_allv": "alltoall",
}
_DATATYPES = {
    "float": Datatype.FLOAT32,
    "bfloat16": Datatype.BFLOAT16,
    "half": Datatype.FLOAT16,
    "double": Datatype.FLOAT64,
    "long": Datatype.INT64,
    "int": Datatype.INT32,
    "byte": Datatype.UINT8,
    "char": Datatype.INT8,
    "bool": Datatype.UINT8,
    "float8_e4m3fn": Datatype.FLOAT8E4M3,
    "float8_e5m2": Datatype.FLOAT8E5M2,
}


def call_kind(arguments: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a call; None: its figures are missing or unknown."""
    collective = str(arguments["Collective name"]).lower()
    ranks = as_integer(arguments.get("Group size"), 1)
    given = as_integer(arguments.get("In msg nelems"), 0)
    taken = as_integer(arguments.get("Out msg nelems"), 0)
    datatype = _DATATYPES.get(str(arguments.get("dtype")).lower())
    if ranks is None or given is None or taken is None:
        return None
    operation = _operation(collective, arguments)
    is_tuned = collective in _OPERATIONS and operation == _OPERATIONS[collective]
    if is_tuned and (datatype is None or not max(given, taken)):
        return None
    size_bytes = max(given, taken) * (1 if datatype is None else datatype.element_bytes)
    if size_bytes > MAX_SIZE_BYTES:
        return None
    form = CallForm(operation, size_bytes, datatype, in_place=_IN_PLACE.get(collective))
    return _group(arguments, ranks), ranks, form


def _operation(collective: str, arguments: Mapping[str, Any]) -> str:
    """Return the operation as tables name it; another name for one that no table has."""
    operation = _OPERATIONS.get(collective, collective[:60] or "unnamed")
    if operation == "alltoall":
        splits = (arguments.get("In split size"), arguments.get("Out split size"))
        if not all(_is_even(split) for split in splits):
            return "alltoallv"
    return operation


def _is_even(split: object) -> bool:
    """Whether all ranks get parts of one size; a list that is cut may hide others."""
    text = str(split or "[]")
    return "..." not in text and len(set(re.findall(r"\d+", text))) <= 1


def _group(arguments: Mapping[str, Any], ranks: int) -> Hashable:
    named = ("Process Group Name", "Process Group Ranks")
    return (ranks, *(str(arguments.get(name)) for name in named))


def group_members(arguments: Mapping[str, Any]) -> frozenset[Hashable]:
    """Return the ranks of a group; empty: unknown, or too many for the trace to list them."""
    text = str(arguments.get("Process Group Ranks") or "")
    return frozenset() if "..." in text else frozenset(map(int, re.findall(r"\d{1,9}", text)))


def as_integer(value: object, least: int) -> int | None:
    """Return a member of an event as an integer; None: it is none of at least this."""
    return value if isinstance(value, int) and least <= value < 1 << 60 else None


def as_number(value: object) -> float | None:
    """Return a member of an event as a finite number; None: it is none."""
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < 1e300 else None
