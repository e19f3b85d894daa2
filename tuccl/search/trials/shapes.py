"""Communicator shapes of a job: the whole machine, and what jobs divide it into.

A shape has a word, or its ranks and nodes as a name: `16x8` are 16 ranks on 8 nodes, two on each.
Siblings are the communicators of one shape that a job has side by side: one on each node, or one
along each rail. They are used at the same time, so they are measured at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from lookup_tables.table import Shape
from tuccl.errors import UsageError

_PAIR = 2
_RANKS_AND_NODES = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})", re.ASCII)


class ShapeName(StrEnum):
    """Shapes by the part of the machine that one communicator spans."""

    WHOLE = "whole"
    """All GPUs."""
    NODE = "node"
    """All GPUs of a host, as tensor parallelism uses them."""
    RAIL = "rail"
    """The GPUs with the same place in all hosts, as data parallelism uses them."""
    PAIRS = "pairs"
    """Two neighbours of a host, as the stages of a pipeline use them."""


@dataclass(frozen=True, slots=True)
class NamedShape:
    """A shape of a run."""

    name: str
    """A `ShapeName`, or ranks and nodes as `16x8`."""
    shape: Shape
    weight: float = 1.0
    """Its weight in the choice of the process profile and in the division of the budget."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of a rank among the siblings of a shape."""

    sibling: int
    """Number of its communicator."""
    rank: int
    """Rank in that."""


def shape_named(name: str, whole: Shape) -> Shape:
    """Return the shape of this name on a machine; it may be that of the whole machine.

    Raises:
        UsageError: The machine has no communicators of this shape.
    """
    if name == ShapeName.WHOLE:
        return whole
    each = whole.ranks_per_node
    if each == 0:
        raise UsageError(f"--shapes {name}: the hosts have different numbers of GPUs; leave it out")
    shapes = {
        ShapeName.NODE: Shape(each, 1, each),
        ShapeName.RAIL: Shape(whole.nodes, whole.nodes, 1),
        ShapeName.PAIRS: Shape(_PAIR, 1, _PAIR),
    }
    shape = shapes[ShapeName(name)] if name in shapes else _numbered(name)
    if shape is None or shape.ranks < _PAIR or memberships(shape, whole) is None:
        here = f"{whole.ranks} GPUs on {whole.nodes} node(s)"
        raise UsageError(f"--shapes {name}: {here} have no such communicators; leave it out")
    return shape


def _numbered(name: str) -> Shape | None:
    """Return the shape that a name such as `16x8` stands for, or None if it is not such a name."""
    found = _RANKS_AND_NODES.fullmatch(name)
    ranks, nodes = map(int, found.groups()) if found else (0, 1)
    return None if ranks == 0 or ranks % nodes else Shape(ranks, nodes, ranks // nodes)


def is_shape_name(text: str) -> bool:
    """Whether a text names a shape, which a machine may lack."""
    return text in list(ShapeName) or _RANKS_AND_NODES.fullmatch(text) is not None


def numbered_name(shape: Shape) -> str:
    """Return the name of a shape that has no word: `16x8`."""
    return f"{shape.ranks}x{shape.nodes}"


def has_shape(name: str, whole: Shape) -> bool:
    """Whether a machine has communicators of the shape of this name."""
    try:
        shape_named(name, whole)
    except UsageError:
        return False
    return True


def shape_text(shape: Shape) -> str:
    """Describe a shape for people: `16 ranks on 2 node(s)`."""
    return f"{shape.ranks} ranks on {shape.nodes} node(s)"


def parse_shape_names(text: str) -> tuple[str, ...]:
    """Parse names such as `whole,rail,16x8`, each once, in this order.

    Raises:
        UsageError: An unknown name, or none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not is_shape_name(word):
            raise UsageError(
                f"--shapes {word!a:.40} is unknown: use some of {', '.join(ShapeName)}, or ranks "
                "and nodes, as 16x8"
            )
    if not words:
        raise UsageError("--shapes names none: use for example --shapes whole,node,rail")
    return tuple(dict.fromkeys(words))


def shapes_named(names: Sequence[str], whole: Shape) -> tuple[NamedShape, ...]:
    """Return the shapes of these names on a machine; those of equal shape are the first one.

    A shape that has a word on this machine has it as its name.

    Raises:
        UsageError: The machine has no communicators of a shape.
    """
    words: dict[Shape, str] = {}
    for word in ShapeName:
        if has_shape(word, whole):
            words.setdefault(shape_named(word, whole), word)
    found: dict[Shape, NamedShape] = {}
    for name in names:
        shape = shape_named(name, whole)
        own = name if name in list(ShapeName) else words.get(shape, name)
        found.setdefault(shape, NamedShape(str(own), shape))
    return tuple(found.values())


def usual_names(whole: Shape, *, pairs: bool) -> tuple[ShapeName, ...]:
    """Return the shapes of the communicators that most jobs have on a machine.

    Args:
        whole: Shape of the communicator of all GPUs.
        pairs: Whether pairs count on one node.
    """
    others = [ShapeName.NODE, ShapeName.RAIL]
    if whole.nodes == 1:
        others = [ShapeName.PAIRS] if pairs else []
    held = [name for name in others if has_shape(name, whole) and shape_named(name, whole) != whole]
    return (ShapeName.WHOLE, *held)


def shapes_of_machine(whole: Shape) -> tuple[NamedShape, ...]:
    """Return all shapes of a machine that have a word, each with its first one."""
    return shapes_named([name for name in ShapeName if has_shape(name, whole)], whole)


def shapes_dividing(whole: Shape) -> tuple[NamedShape, ...]:
    """Return all shapes whose communicators divide a machine's GPUs, those with a word first."""
    each, nodes = whole.ranks_per_node, whole.nodes
    numbered = [
        numbered_name(Shape(beside * over, over, beside))
        for over in range(1, nodes + 1)
        for beside in range(1, each + 1)
        if nodes % over == 0 and each % beside == 0 and beside * over >= _PAIR
    ]
    words = [named.name for named in shapes_of_machine(whole)]
    return shapes_named([*words, *numbered], whole)


def shapes_beside(tuned: Collection[Shape], whole: Shape) -> tuple[Shape, ...]:
    """Return shapes that jobs on a machine may have beside those that are tuned, sorted.

    They are those with a name, and the halves and thirds of a node.
    """
    each = whole.ranks_per_node
    found = {named.shape for named in shapes_of_machine(whole)}
    for part in (2, 3):
        if each % part == 0 and each // part >= _PAIR:
            found.add(Shape(each // part, 1, each // part))
    return tuple(sorted(shape for shape in found if shape.ranks >= _PAIR and shape not in tuned))


def strides(shape: Shape, whole: Shape) -> tuple[int, ...]:
    """Return the strides at which communicators of a shape divide the GPUs of a machine.

    They are those of a grid of parallel dimensions, whose communicators a job makes along each
    dimension: neighbours first, the two halves of a host last. Empty where ranks are left over.
    """
    if memberships(shape, whole) is None:
        return ()
    if shape == whole or shape.ranks_per_node == 1:
        return (1,)
    groups = whole.ranks_per_node // shape.ranks_per_node
    return tuple(stride for stride in range(1, groups + 1) if groups % stride == 0)


@lru_cache(maxsize=64)
def memberships(shape: Shape, whole: Shape, stride: int = 1) -> tuple[Membership, ...] | None:
    """Return each rank's place among the siblings of a shape; None where they leave ranks over.

    Ranks are numbered node by node. A sibling takes every `stride`-th rank of a host, neighbouring
    ranks if that is 1, on neighbouring hosts.
    """
    each, of_node = shape.ranks_per_node, whole.ranks_per_node
    if shape == whole:
        return tuple(Membership(0, rank) for rank in range(whole.ranks))
    if min(each, of_node) == 0 or of_node % (each * stride) or whole.nodes % shape.nodes:
        return None
    places = [divmod(rank, of_node) for rank in range(whole.ranks)]
    return tuple(
        Membership(
            node // shape.nodes * (of_node // each)
            + place // (each * stride) * stride
            + place % stride,
            node % shape.nodes * each + place // stride % each,
        )
        for node, place in places
    )
