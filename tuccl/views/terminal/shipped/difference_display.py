"""One table against another on standard output: what differs around the keys, then the keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from probes.inputs.printable import printable
from tuccl.reports.documents.versions import ComparedSide, DiffDocument, DiffKey, KeyPromise
from tuccl.reports.table_difference import KeyDifference, Promise, TableDifference
from tuccl.search.trials.shapes import shape_text
from tuccl.shipping.table_places import PlacedTable
from tuccl.views.terminal.display import print_lines, standard_output
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size


def diff_document(
    first: PlacedTable, second: PlacedTable, difference: TableDifference
) -> DiffDocument:
    """Return the document of `tuccl diff`."""
    sides = [_side(first), _side(second)]
    around = (sides[0].fingerprint, sides[0].nccl, sides[0].profile)
    is_same = around == (sides[1].fingerprint, sides[1].nccl, sides[1].profile)
    return DiffDocument(
        first=sides[0],
        second=sides[1],
        common=difference.common,
        speedup=difference.speedup,
        same=is_same and all(key.is_same for key in difference.keys),
        keys=[_key(key) for key in difference.keys],
    )


def _side(place: PlacedTable) -> ComparedSide:
    return ComparedSide(
        place=place.name,
        topology=place.topology_name,
        fingerprint=place.fingerprint,
        nccl=place.nccl or None,
        profile=dict(place.profile),
        keys=len(place.promises),
    )


def _key(key: KeyDifference) -> DiffKey:
    return DiffKey(
        operation=key.call.operation,
        shape=key.call.shape,
        size_bytes=key.call.size_bytes,
        placement=key.call.placement or None,
        first=_promise(key.first),
        second=_promise(key.second),
        ratio=key.ratio,
        changes=list(key.changes),
    )


def _promise(promise: Promise | None) -> KeyPromise | None:
    if promise is None:
        return None
    origin = promise.provenance
    return KeyPromise(
        runs=promise.runs,
        time_us=promise.time_us,
        stock_us=promise.stock_us,
        speedup=promise.stock_us / promise.time_us if promise.time_us else None,
        provenance=None if origin is None else _origin_text(origin.describe(), origin.machine),
    )


def _origin_text(text: str, machine: str | None) -> str:
    return f"{text}, on {machine}" if machine else text


def print_difference(shown: DiffDocument) -> None:
    """Print machine, NCCL, profile and gain, then a row for each key that differs."""
    print_lines(_lines(shown))
    changed = [key for key in shown.keys if not _is_common(key) or key.changes]
    if changed:
        standard_output().print(_rows(changed), crop=False)


def _lines(shown: DiffDocument) -> Iterator[str]:
    first, second = shown.first, shown.second
    yield f"A: {_side_text(first)}"
    yield f"B: {_side_text(second)}"
    if first.fingerprint != second.fingerprint:
        yield "the machines differ: each table's times are of its own"
    if first.nccl != second.nccl:
        yield f"NCCL: {_nccl(first)} in A, {_nccl(second)} in B"
    yield from _profile_lines(first.profile, second.profile)
    same = sum(_is_common(key) and not key.changes for key in shown.keys)
    alone = [sum(key.second is None for key in shown.keys)]
    alone.append(len(shown.keys) - shown.common - alone[0])
    yield (
        f"keys: {shown.common} common, {same} of them the same; {alone[0]} in A alone, "
        f"{alone[1]} in B alone"
    )
    if shown.speedup is None:
        yield "no key has a time in both tables: nothing to compare"
    else:
        known = count_of(sum(key.ratio is not None for key in shown.keys), "common key")
        yield f"B against A: {shown.speedup:.3f}x, geometric mean over {known}"


def _is_common(key: DiffKey) -> bool:
    return key.first is not None and key.second is not None


def _side_text(side: ComparedSide) -> str:
    return (
        f"{printable(side.place)}: {printable(side.topology)}, fingerprint "
        f"{printable(side.fingerprint)}, NCCL {_nccl(side)}"
    )


def _nccl(side: ComparedSide) -> str:
    return printable(side.nccl or "not measured")


def _profile_lines(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(first.keys() | second.keys()):
        before, now = first.get(name), second.get(name)
        if before != now:
            yield (
                f"process profile: {printable(name)} is {printable(now or 'not set')} in B, "
                f"{printable(before or 'not set')} in A"
            )


def _rows(keys: list[DiffKey]) -> RichTable:
    rows = RichTable(
        title=Text("keys that differ, times in us"), title_justify="left", header_style="bold",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    rows.add_column("operation", no_wrap=True)
    placed = any(key.placement for key in keys)
    rows.add_column("communicator", no_wrap=not placed, overflow="fold")
    for heading in ("size", "A", "B", "B against A"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column("differs", overflow="fold")
    rows.add_column("what runs in A", overflow="fold")
    rows.add_column("in B", overflow="fold")
    for key in keys:
        rows.add_row(
            key.operation.value,
            _communicator(key),
            format_size(key.size_bytes),
            *(_time(side) for side in (key.first, key.second)),
            "-" if key.ratio is None else f"{key.ratio:.3f}x",
            _difference_text(key),
            *(printable(side.runs) if side else "-" for side in (key.first, key.second)),
        )
    return rows


def _communicator(key: DiffKey) -> str:
    like = f", like {printable(key.placement)}" if key.placement else ""
    return f"{shape_text(key.shape)}{like}"


def _time(side: KeyPromise | None) -> str:
    return "-" if side is None or side.time_us is None else f"{side.time_us:.1f}"


def _difference_text(key: DiffKey) -> str:
    if key.first is None or key.second is None:
        return f"in {'B' if key.first is None else 'A'} alone"
    return ", ".join(change.value for change in key.changes)
