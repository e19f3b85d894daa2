"""Schedules as MSCCL XML, read into `Program`s.

The text is that of the bundle's SCHEDULES, which `synthesizer.formats.msccl_xml` writes and other
tools too; docs/schedule-formats.md describes it. Only what an executor needs is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from lookup_tables.errors import ScheduleTextError
from lookup_tables.programs.program_layout import MOST_STEPS, BufferCode, StepCode
from lookup_tables.programs.program_model import (
    Place,
    Program,
    ProgramBlock,
    ProgramStep,
    RankProgram,
)
from lookup_tables.table import Operation

_OPERATIONS = {
    "allreduce": Operation.ALL_REDUCE,
    "allgather": Operation.ALL_GATHER,
    "reducescatter": Operation.REDUCE_SCATTER,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "broadcast": Operation.BROADCAST,
    "reduce": Operation.REDUCE,
    "alltoall": Operation.ALLTOALL,
}
_BUFFERS = {"i": BufferCode.INPUT, "o": BufferCode.OUTPUT, "s": BufferCode.SCRATCH}
_STEPS = {code.name.lower(): code for code in StepCode}
_UNUSED = Place(BufferCode.INPUT, 0)
_INTEGER = re.compile(r"-?[0-9]{1,9}")
_MAX_ELEMENTS = 2_000_000


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    children: list[_Element] = field(default_factory=list)

    def text(self, name: str) -> str:
        if name not in self.attributes:
            raise ScheduleTextError(f"<{self.tag}> has no attribute {name!r}")
        return self.attributes[name]

    def integer(self, name: str, default: int | None = None) -> int:
        if default is not None and name not in self.attributes:
            return default
        value = self.text(name)
        if not _INTEGER.fullmatch(value):
            raise ScheduleTextError(f"<{self.tag}> has {name}={value[:40]!r}, not a whole number")
        return int(value)

    def tagged(self, tag: str, order: str) -> list[_Element]:
        """Children of a tag, which an attribute numbers from 0."""
        found = [child for child in self.children if child.tag == tag]
        found.sort(key=lambda child: child.integer(order))
        if [child.integer(order) for child in found] != list(range(len(found))):
            raise ScheduleTextError(f"<{tag}> elements of <{self.tag}> are not numbered from 0")
        return found


def read_schedule_xml(text: str) -> Program:
    """Read a schedule; whether it makes sense is for `program_flow`.

    Raises:
        ScheduleTextError: The text is no MSCCL XML of an operation that an executor knows.
    """
    root = _parse(text)
    if root.tag != "algo":
        raise ScheduleTextError(f"the root element is <{root.tag}>, not <algo>")
    operation = _OPERATIONS.get(root.text("coll").lower())
    if operation is None:
        raise ScheduleTextError(f"coll={root.text('coll')[:40]!r} is no operation of an executor")
    in_place = root.integer("inplace") == 1
    if root.integer("outofplace", int(not in_place)) != 1:
        raise ScheduleTextError("it runs in place only, and a call may be either")
    gpus = root.tagged("gpu", "id")
    if len(gpus) != root.integer("ngpus"):
        raise ScheduleTextError(f"ngpus={root.integer('ngpus')}, but {len(gpus)} <gpu> elements")
    return Program(
        operation=operation,
        chunks_per_loop=root.integer("nchunksperloop"),
        root=root.integer("root", 0),
        in_place=in_place,
        ranks=tuple(
            RankProgram(gpu.integer("s_chunks"), tuple(map(_block, gpu.tagged("tb", "id"))))
            for gpu in gpus
        ),
    )


def _parse(text: str) -> _Element:
    parser = expat.ParserCreate("utf-8")
    top = _Element("", {})
    path = [top]
    count = 0

    def refuse(*_: object) -> None:
        # A document type can define entities that grow without bound.
        raise ScheduleTextError("<!DOCTYPE> is not allowed in a schedule")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MAX_ELEMENTS:
            raise ScheduleTextError(f"more than {_MAX_ELEMENTS:,} elements")
        element = _Element(tag, attributes)
        path[-1].children.append(element)
        path.append(element)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise ScheduleTextError(f"not well-formed XML ({error})") from None
    return top.children[0]


def _block(element: _Element) -> ProgramBlock:
    return ProgramBlock(
        send_peer=element.integer("send"),
        receive_peer=element.integer("recv"),
        channel=element.integer("chan"),
        steps=tuple(map(_step, element.tagged("step", "s"))),
    )


def _step(element: _Element) -> ProgramStep:
    code = _STEPS.get(element.text("type"))
    if code is None:
        raise ScheduleTextError(f"step type {element.text('type')[:40]!r} is unknown")
    awaited = element.integer("depid")
    count = element.integer("cnt")
    if (count < 1 and code is not StepCode.NOP) or count > MOST_STEPS:
        raise ScheduleTextError(f"a step moves {count} chunks, 1 to {MOST_STEPS} can be")
    return ProgramStep(
        code=code,
        src=_place(element, "src") if code.reads else _UNUSED,
        dst=_place(element, "dst") if code.writes else _UNUSED,
        count=count if code is not StepCode.NOP else 1,
        depends=None if awaited < 0 else (awaited, element.integer("deps")),
    )


def _place(element: _Element, side: str) -> Place:
    buffer = _BUFFERS.get(element.text(f"{side}buf"))
    if buffer is None:
        raise ScheduleTextError(f"{side}buf={element.text(f'{side}buf')[:40]!r} is no buffer")
    return Place(buffer, element.integer(f"{side}off"))
