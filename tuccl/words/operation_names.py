"""Operations as people write them."""

from __future__ import annotations

from lookup_tables.table import Operation
from tuccl.errors import UsageError


def parse_operation(name: str) -> Operation:
    """An operation by its nccl-tests name; `AllReduce` and `allreduce` are understood too.

    Raises:
        UsageError: for anything else.
    """
    wanted = name.lower().replace("_", "").replace("-", "")
    for operation in Operation:
        if operation.value.replace("_", "") == wanted:
            return operation
    known = ", ".join(operation.value for operation in Operation)
    raise UsageError(f"operation {name!r} is unknown: use one of {known}")


def parse_operations(text: str) -> tuple[Operation, ...]:
    """Operations from their names, separated by commas; each once, ascending.

    Raises:
        UsageError: for an unknown one, or none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("no operation given: use for example --operations all_reduce,all_gather")
    return tuple(sorted({parse_operation(name) for name in names}))
