"""Communicator shapes of a job: the whole machine, and what jobs divide it into.

Siblings are the communicators of one shape that a job has side by side: one on each node, or one
along each rail. They are used at the same time, so they are measured at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from lookup_tables.table import Shape
from tuccl.errors import UsageError

_PAIR = 2


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

    name: ShapeName
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


def shape_named(name: ShapeName, whole: Shape) -> Shape:
    """Return the shape of this name on a machine; it may be that of the whole machine.

    Raises:
        UsageError: The machine has no communicators of this shape.
    """
    if name is ShapeName.WHOLE:
        return whole
    each = whole.ranks_per_node
    if each == 0:
        raise UsageError(f"--shapes {name}: the hosts have different numbers of GPUs; leave it out")
    shapes = {
        ShapeName.NODE: Shape(each, 1, each),
        ShapeName.RAIL: Shape(whole.nodes, whole.nodes, 1),
        ShapeName.PAIRS: Shape(_PAIR, 1, _PAIR),
    }
    shape = shapes[name]
    if shape.ranks < _PAIR or memberships(shape, whole) is None:
        here = f"{whole.ranks} GPUs on {whole.nodes} node(s)"
        raise UsageError(f"--shapes {name}: {here} have no such communicators; leave it out")
    return shape


def has_shape(name: ShapeName, whole: Shape) -> bool:
    """Whether a machine has communicators of the shape of this name."""
    try:
        shape_named(name, whole)
    except UsageError:
        return False
    return True


def shape_text(shape: Shape) -> str:
    """Describe a shape for people: `16 ranks on 2 node(s)`."""
    return f"{shape.ranks} ranks on {shape.nodes} node(s)"


def parse_shape_names(text: str) -> tuple[ShapeName, ...]:
    """Parse names such as `whole,node,rail`, each once, in this order.

    Raises:
        UsageError: An unknown name, or none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = [name.value for name in ShapeName]
    for word in words:
        if word not in known:
            raise UsageError(f"--shapes {word!a:.40} is unknown: use some of {', '.join(known)}")
    if not words:
        raise UsageError("--shapes names none: use for example --shapes whole,node,rail")
    return tuple(dict.fromkeys(map(ShapeName, words)))


def shapes_named(names: Sequence[ShapeName], whole: Shape) -> tuple[NamedShape, ...]:
    """Return the shapes of these names on a machine; those of equal shape are the first one.

    Raises:
        UsageError: The machine has no communicators of a shape.
    """
    found: dict[Shape, NamedShape] = {}
    for name in names:
        shape = shape_named(name, whole)
        found.setdefault(shape, NamedShape(name, shape))
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
    """Return all shapes that a machine has, each with its first name."""
    return shapes_named([name for name in ShapeName if has_shape(name, whole)], whole)


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
