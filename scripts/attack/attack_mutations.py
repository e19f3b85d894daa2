"""Mutate files in bits, pieces, numbers, nesting and structure, reproducibly by seed."""

from __future__ import annotations

import copy
import io
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Mutation = Callable[[bytes, random.Random], bytes]

_NUMBERS = (
    b"0",
    b"-1",
    b"1" * 5000,
    b"9" * 400,
    b"1e999",
    b"-1e-999",
    b"NaN",
    b"Infinity",
    b"2147483648",
    b"18446744073709551616",
    b"9223372036854775807",
    b"999999999",
    b"65537",
    b"0x7fffffff",
    b"1.5",
    "²".encode(),
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    [],
    {},
    "",
    "\0",
    "x" * 10_000,
    "\ud800",
    -1,
    0,
    10**400,
    1e308,
    float("inf"),
    float("nan"),
    1 << 63,
    [[]],
    {"a": 1},
)
_NESTS = (b"[", b"<a>", b'{"a":', b"(", b"[[1-9],", b"<cpu>", b"<pci>")


def flip(data: bytes, rng: random.Random) -> bytes:
    """Flip a few bits."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, rng: random.Random) -> bytes:
    """Cut the end or a piece in the middle."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + (b"" if rng.random() < 0.5 else data[start + rng.randrange(1, 200) :])


def repeat(data: bytes, rng: random.Random) -> bytes:
    """Repeat a piece up to thousands of times."""
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randrange(1, 300)]
    times = min(rng.choice((1, 2, 50, 5000)), 400_000 // (len(piece) + 1))
    return data[:start] + piece * times + data[start:]


def number(data: bytes, rng: random.Random) -> bytes:
    """Replace a number with another one or with thousands of digits."""
    found = list(re.finditer(rb"\d+(?:\.\d+)?", data[:2_000_000]))
    if not found:
        return flip(data, rng)
    place = rng.choice(found)
    return data[: place.start()] + rng.choice(_NUMBERS) + data[place.end() :]


def nest(data: bytes, rng: random.Random) -> bytes:
    """Insert an opening bracket or tag many times."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.choice(_NESTS) * rng.choice((5, 70, 5000, 50_000)) + data[start:]


def swap(data: bytes, rng: random.Random) -> bytes:
    """Swap two lines or two words."""
    pieces = re.split(rb"(\n|[\s,;=\"]+)", data) if rng.random() < 0.5 else re.split(rb"(\n)", data)
    i, j = rng.randrange(len(pieces)), rng.randrange(len(pieces))
    pieces[i], pieces[j] = pieces[j], pieces[i]
    return b"".join(pieces)


def strange(data: bytes, rng: random.Random) -> bytes:
    """Insert control or invalid characters, or replace the whole input."""
    start = rng.randrange(len(data) + 1)
    middle = rng.choice((b"\0", b"\xff\xfe", "\u2028".encode(), b"\r", b"%s", b"\x1b[2J"))
    whole = (b"", b" ", b"{}", b"[]", b"null", b"0", b'""', b",", data * 3)
    if rng.random() < 0.2:
        return rng.choice(whole)
    return data[:start] + middle * rng.choice((1, 100)) + data[start:]


TEXT: tuple[Mutation, ...] = (flip, cut, repeat, number, number, nest, swap, strange)


def json_structure(data: bytes, rng: random.Random) -> bytes:
    """Replace, delete, repeat or rename nodes of a JSON document."""
    try:
        document = json.loads(data)
    except ValueError:
        return number(data, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        nodes = _nodes(document)
        if not nodes:
            return number(data, rng)
        (holder, key), (donor, place) = rng.choice(nodes), rng.choice(nodes)
        match rng.randrange(4):
            case 0:
                holder[key] = copy.deepcopy(rng.choice(_VALUES))
            case 1:
                holder[key] = json.loads(json.dumps(donor[place]))
            case 2:
                del holder[key]
            case _:
                if isinstance(holder, list) and len(holder) < 100_000:
                    holder += holder[: rng.choice((1, 1000))]
                elif isinstance(holder, dict):
                    holder[f"{key}x"] = holder.pop(key)
    return json.dumps(document).encode()


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: its container and its key or index."""
    found = []
    waiting = [value] if isinstance(value, dict | list) else []
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def parquet_structure(data: bytes, rng: random.Random) -> bytes:
    """Change a cell, a column or the metadata of a Parquet file, which stays readable."""
    try:
        table = pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)
    except (pa.ArrowException, OSError):
        return flip(data, rng)
    match rng.randrange(5):
        case 0 if table.num_columns:
            table = table.drop_columns([rng.choice(table.column_names)])
        case 1:
            table = table.select(rng.sample(table.column_names, len(table.column_names)))
        case 2:
            table = pa.concat_tables([table] * rng.choice((2, 200)))
        case 3 if table.num_columns:
            table = _another_cell(table, rng)
        case _:
            metadata = dict(table.schema.metadata or {})
            if not metadata:
                return flip(data, rng)
            key = rng.choice(sorted(metadata))
            metadata[key] = rng.choice((json_structure, number, flip, nest))(metadata[key], rng)
            table = table.replace_schema_metadata(metadata)
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _another_cell(table: pa.Table, rng: random.Random) -> pa.Table:
    place = rng.randrange(len(table.column_names))
    column = table.column(place)
    values = column.to_pylist()
    fitting: tuple[Any, ...] = (None, "", "\0", "x" * 5000, "NaN", "a=1")
    if pa.types.is_integer(column.type):
        fitting = (None, -1, 0, (1 << 63) - 1, 1 << 40, -(1 << 63))
    elif pa.types.is_floating(column.type):
        fitting = (None, -1.0, 0.0, float("nan"), float("inf"), 1e308, 5e-324)
    elif pa.types.is_boolean(column.type):
        fitting = (None, False, True)
    elif pa.types.is_list(column.type) and pa.types.is_integer(column.type.value_type):
        fitting = (None, [], [-1], [1 << 40] * 3, [0] * 100_000)
    elif pa.types.is_list(column.type):
        fitting = (None, [], [float("nan")], [-1.0], [1e308] * 3, [0.0] * 100_000)
    for _ in range(rng.choice((1, 1, 3)) if values else 0):
        values[rng.randrange(len(values))] = rng.choice(fitting)
    field = pa.field(table.column_names[place], column.type)
    return table.set_column(place, field, pa.array(values, column.type))
