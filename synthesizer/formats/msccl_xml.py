"""MSCCL algorithm XML: reading and writing.

Two runtimes read this format and differ in details. microsoft/msccl (src/graph/topo.cc) spells
`reduce_scatter`, ignores `outofplace`, and takes maxBytes=0 literally: it never uses such a
schedule, and refuses it if minBytes is larger. Azure/msccl-executor-nccl
(src/misc/msccl/msccl_parser.cc) spells `reducescatter`, requires minBytes, maxBytes and outofplace,
and takes maxBytes=0 for no limit. The reader accepts both dialects. The writer emits all
attributes; its dialects differ in the spelling and in maxBytes.

`<copy>` elements and `redop`, which TACCL and TE-CCL write, are ignored by the runtimes and here.

`<result>` elements of a `<gpu>` are TuCCL's own, and the runtimes ignore them, too: output chunks
`off` to `off + cnt - 1` of a custom operation must hold input chunks from `chunk` on, added up over
the ranks whose bits are set in `ranks`, a hexadecimal number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import TypeVar
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.contents import Sum
from tuccl.errors import FormatError


class Dialect(StrEnum):
    """The runtime that a file is written for."""

    AZURE = "azure"
    MICROSOFT = "microsoft"


_COLLECTIVES = {
    # Operations that the runtimes know and TuCCL does not.
    **dict.fromkeys(
        ("gather", "scatter", "send", "recv", "alltoallv", "sendrecv"), Collective.CUSTOM
    ),
    **{collective.short_name: collective for collective in Collective},
    "reduce_scatter": Collective.REDUCE_SCATTER,
}
_READ = frozenset({"gpu", "tb", "step", "result"})
"""Elements below the root that are read; all others are dropped while parsing."""
MAX_ELEMENTS = 2_000_000
"""Most elements of a file; schedules of MSCCL and its successors have up to 12,000."""
_NO_LIMIT = 10**18 - 1
"""maxBytes of a schedule without an upper limit, for the runtime that takes 0 literally."""
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_64_BITS = range(-(1 << 63), 1 << 63)
"""Numbers that MSCCL's runtimes read: strtoll."""
_RANKS = re.compile(r"[0-9a-f]{1,250}")
_E = TypeVar("_E", bound=StrEnum)


@dataclass(slots=True)
class _Element:
    """An XML element with its first line and its children."""

    tag: str
    line: int
    attributes: dict[str, str]
    children: list[_Element] = field(default_factory=list)


class _Reader:
    """Reads attributes of elements; every error names file, line and element."""

    def __init__(self, source: str) -> None:
        self.source = source

    def error(self, element: _Element, problem: str) -> FormatError:
        """Return the error for a problem with an element."""
        return FormatError(f"{self.source}:{element.line}: <{element.tag}> {problem}")

    def text(self, element: _Element, name: str) -> str:
        """Return a mandatory attribute."""
        try:
            return element.attributes[name]
        except KeyError:
            raise self.error(element, f"has no attribute {name!r}") from None

    def integer(self, element: _Element, name: str, default: int | None = None) -> int:
        """Return a whole number; mandatory unless there is a default."""
        if default is not None and name not in element.attributes:
            return default
        value = self.text(element, name)
        if not _INTEGER.fullmatch(value.strip()) or int(value) not in _64_BITS:
            raise self.error(
                element, f"has {name}={_short(value)}, which is not a whole number of 64 bits"
            )
        return int(value)

    def flag(self, element: _Element, name: str, default: bool | None = None) -> bool:
        """Return an attribute that is 0 or 1 as a bool."""
        value = self.integer(element, name, None if default is None else int(default))
        if value not in {0, 1}:
            raise self.error(element, f"has {name}={value}, must be 0 or 1")
        return bool(value)

    def member(self, element: _Element, name: str, kind: type[_E]) -> _E:
        """Return a member of an enumeration."""
        value = self.text(element, name)
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(kind)
            raise self.error(
                element, f"has {name}={_short(value)}, must be one of {known}"
            ) from None

    def children(self, element: _Element, tag: str) -> Iterator[_Element]:
        """Return the children with a tag; the runtimes ignore others as well."""
        return (child for child in element.children if child.tag == tag)


def read_msccl_xml(text: str, source: str = "schedule") -> Algorithm:
    """Read a schedule.

    `source` is the name of the file, for messages.

    Raises:
        FormatError: The text is not such a file. Whether the schedule is correct is for the
            verifier to say.
    """
    root = _parse(text, source)
    reader = _Reader(source)
    if root.tag != "algo":
        raise reader.error(root, "is not an MSCCL algorithm, whose root element is <algo>")
    name = reader.text(root, "coll")
    collective = _COLLECTIVES.get(name.lower())
    if collective is None:
        known = ", ".join(_COLLECTIVES)
        raise reader.error(root, f"has coll={_short(name)}, must be one of {known}")
    in_place = reader.flag(root, "inplace")
    elements = sorted(reader.children(root, "gpu"), key=lambda gpu: reader.integer(gpu, "id"))
    gpus = [_gpu(reader, element) for element in elements]
    results = tuple(map(partial(_result, reader), elements, gpus))
    if any(map(any, results)) and collective is not Collective.CUSTOM:
        raise reader.error(root, f"has <result> elements, and the result of {name} is known")
    ranks = reader.integer(root, "ngpus")
    max_bytes = reader.integer(root, "maxBytes", 0)
    if [gpu.rank for gpu in gpus] != list(range(len(gpus))) or len(gpus) != ranks:
        found = _short(",".join(str(gpu.rank) for gpu in gpus))
        raise reader.error(root, f"has ngpus={ranks} and <gpu> elements with the ids {found}")
    return Algorithm(
        name=root.attributes.get("name", ""),
        collective=collective,
        protocol=reader.member(root, "proto", Protocol),
        channels=reader.integer(root, "nchannels"),
        chunks_per_loop=reader.integer(root, "nchunksperloop"),
        in_place=in_place,
        out_of_place=reader.flag(root, "outofplace", default=not in_place),
        programs=tuple(gpus),
        min_bytes=reader.integer(root, "minBytes", 0),
        max_bytes=0 if max_bytes == _NO_LIMIT else max_bytes,
        root=reader.integer(root, "root", 0),
        results=results if any(map(any, results)) else (),
    )


def _short(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:40] + "...")


def _parse(text: str, source: str) -> _Element:
    parser = expat.ParserCreate("utf-8")
    # A document type can define entities that grow without bound; no schedule file needs one.
    top: list[_Element] = []
    open_elements: list[_Element] = []
    count = 0

    def refuse(*_: object) -> None:
        raise FormatError(
            f"{source}:{parser.CurrentLineNumber}: <!DOCTYPE> is not allowed in a schedule file"
        )

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS:
            raise FormatError(
                f"{source}:{parser.CurrentLineNumber}: more than {MAX_ELEMENTS:,} elements; give "
                "the schedule as it was written"
            )
        element = _Element(tag, parser.CurrentLineNumber, attributes)
        if not open_elements or tag in _READ:
            (open_elements[-1].children if open_elements else top).append(element)
        open_elements.append(element)

    def end(_: str) -> None:
        open_elements.pop()

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise FormatError(f"{source}:{error.lineno}: not well-formed XML: {reason}") from None
    except UnicodeEncodeError:
        raise FormatError(f"{source}: the text is not valid Unicode") from None
    return top[0]


def _gpu(reader: _Reader, element: _Element) -> GpuProgram:
    blocks = [_threadblock(reader, child) for child in reader.children(element, "tb")]
    blocks.sort(key=lambda pair: pair[0].id)
    _check_awaited(reader, blocks)
    return GpuProgram(
        rank=reader.integer(element, "id"),
        input_chunks=reader.integer(element, "i_chunks"),
        output_chunks=reader.integer(element, "o_chunks"),
        scratch_chunks=reader.integer(element, "s_chunks"),
        threadblocks=tuple(block for block, _ in blocks),
    )


def _result(reader: _Reader, gpu: _Element, program: GpuProgram) -> tuple[Sum | None, ...]:
    """Return what the author says about the output chunks of a rank, if anything."""
    found: dict[int, Sum] = {}
    for element in reader.children(gpu, "result"):
        first, count = reader.integer(element, "off"), reader.integer(element, "cnt")
        chunk, ranks = reader.integer(element, "chunk"), reader.text(element, "ranks")
        if not _RANKS.fullmatch(ranks):
            raise reader.error(element, f"has ranks={_short(ranks)}, must be hexadecimal")
        if not 0 <= first < first + count <= min(program.output_chunks, MAX_ELEMENTS) or chunk < 0:
            raise reader.error(element, f"is outside the {program.output_chunks} output chunks")
        for place in range(count):
            if first + place in found:
                raise reader.error(element, f"states output chunk {first + place} again")
            found[first + place] = Sum(chunk + place, int(ranks, 16))
    return tuple(map(found.get, range(1 + max(found, default=-1))))


def _check_awaited(reader: _Reader, blocks: list[tuple[Threadblock, list[_Element]]]) -> None:
    """Refuse awaited steps without hasdep=1: they never signal, and the waiting step hangs."""
    awaited = _awaited([block for block, _ in blocks])
    for block, elements in blocks:
        for number, element in enumerate(elements):
            if (block.id, number) in awaited and not reader.flag(element, "hasdep"):
                raise reader.error(element, "is waited for by another step and has hasdep=0")


def _awaited(blocks: list[Threadblock] | tuple[Threadblock, ...]) -> set[tuple[int, int]]:
    return {
        (step.depends.threadblock, step.depends.step)
        for block in blocks
        for step in block.steps
        if step.depends is not None
    }


def _threadblock(reader: _Reader, element: _Element) -> tuple[Threadblock, list[_Element]]:
    children = list(reader.children(element, "step"))
    for position, child in enumerate(children):
        if reader.integer(child, "s") != position:
            raise reader.error(child, f"has s={child.attributes['s']}, must be {position}")
    block = Threadblock(
        id=reader.integer(element, "id"),
        send_peer=reader.integer(element, "send"),
        recv_peer=reader.integer(element, "recv"),
        channel=reader.integer(element, "chan"),
        steps=tuple(_step(reader, child) for child in children),
    )
    return block, children


def _step(reader: _Reader, element: _Element) -> Step:
    threadblock = reader.integer(element, "depid")
    step = reader.integer(element, "deps")
    if threadblock < -1:
        raise reader.error(element, f"has depid={threadblock}, must be a threadblock or -1")
    reader.flag(element, "hasdep", default=False)
    return Step(
        type=reader.member(element, "type", StepType),
        src=ChunkRef(reader.member(element, "srcbuf", Buffer), reader.integer(element, "srcoff")),
        dst=ChunkRef(reader.member(element, "dstbuf", Buffer), reader.integer(element, "dstoff")),
        count=reader.integer(element, "cnt"),
        depends=None if threadblock < 0 else StepRef(threadblock, step),
    )


def write_msccl_xml(algorithm: Algorithm, dialect: Dialect = Dialect.AZURE) -> str:
    """Write a schedule, with all attributes that either runtime demands.

    `root` is TuCCL's own attribute for broadcast and reduce; the runtimes ignore it.
    """
    collective = algorithm.collective.short_name
    if algorithm.collective is Collective.REDUCE_SCATTER and dialect is Dialect.MICROSOFT:
        collective = "reduce_scatter"
    max_bytes = algorithm.max_bytes
    if max_bytes == 0 and dialect is Dialect.MICROSOFT:
        max_bytes = _NO_LIMIT
    root = f' root="{algorithm.root}"' if algorithm.collective.has_root else ""
    head = (
        f'<algo name={quoteattr(algorithm.name)} proto="{algorithm.protocol}"'
        f' nchannels="{algorithm.channels}" nchunksperloop="{algorithm.chunks_per_loop}"'
        f' ngpus="{algorithm.ranks}" coll="{collective}" inplace="{algorithm.in_place:d}"'
        f' outofplace="{algorithm.out_of_place:d}" minBytes="{algorithm.min_bytes}"'
        f' maxBytes="{max_bytes}"{root}>'
    )
    lines = [head]
    for gpu in algorithm.programs:
        stated = algorithm.results[gpu.rank] if algorithm.results else ()
        lines.extend(_gpu_lines(gpu, stated))
    lines.append("</algo>\n")
    return "\n".join(lines)


def _gpu_lines(gpu: GpuProgram, results: Sequence[Sum | None]) -> Iterator[str]:
    awaited = _awaited(gpu.threadblocks)
    yield (
        f'  <gpu id="{gpu.rank}" i_chunks="{gpu.input_chunks}" o_chunks="{gpu.output_chunks}"'
        f' s_chunks="{gpu.scratch_chunks}">'
    )
    for block in gpu.threadblocks:
        yield (
            f'    <tb id="{block.id}" send="{block.send_peer}" recv="{block.recv_peer}"'
            f' chan="{block.channel}">'
        )
        for number, step in enumerate(block.steps):
            threadblock, awaited_step = (
                (step.depends.threadblock, step.depends.step) if step.depends else (-1, -1)
            )
            yield (
                f'      <step s="{number}" type="{step.type}" srcbuf="{step.src.buffer}"'
                f' srcoff="{step.src.offset}" dstbuf="{step.dst.buffer}"'
                f' dstoff="{step.dst.offset}" cnt="{step.count}" depid="{threadblock}"'
                f' deps="{awaited_step}" hasdep="{(block.id, number) in awaited:d}"/>'
            )
        yield "    </tb>"
    yield from _result_lines(results)
    yield "  </gpu>"


def _result_lines(results: Sequence[Sum | None]) -> Iterator[str]:
    """Yield an element for each run of output chunks that hold a run of input chunks."""
    alike = groupby(enumerate(results), key=lambda at: at[1] and (at[1].chunk - at[0], at[1].ranks))
    for stated, run in alike:
        if stated is not None:
            (first, _), *more = run
            chunk = first + stated[0]
            yield (
                f'    <result off="{first}" cnt="{1 + len(more)}" chunk="{chunk}"'
                f' ranks="{stated[1]:x}"/>'
            )
