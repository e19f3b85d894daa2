"""Communicator shapes by name, and how siblings divide a machine's ranks."""

from __future__ import annotations

from collections import Counter

import pytest

from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.search.trials.shapes import (
    Membership,
    memberships,
    parse_shape_names,
    shapes_dividing,
    shapes_named,
    strides,
)

TWO_HOSTS = Shape(16, 2, 8)
ONE_HOST = Shape(8, 1, 8)


def parse_shapes(text: str, whole: Shape) -> tuple[Shape, ...]:
    return tuple(named.shape for named in shapes_named(parse_shape_names(text), whole))


def test_names_are_shapes_of_the_machine() -> None:
    assert parse_shapes("whole,node, rail,pairs", TWO_HOSTS) == (
        TWO_HOSTS,
        Shape(8, 1, 8),
        Shape(2, 2, 1),
        Shape(2, 1, 2),
    )


def test_the_same_shape_counts_once() -> None:
    assert parse_shapes("whole,node", ONE_HOST) == (ONE_HOST,)
    assert parse_shapes("node,pairs", Shape(4, 2, 2)) == (Shape(2, 1, 2),)
    assert parse_shapes("whole,rail", Shape(3, 3, 1)) == (Shape(3, 3, 1),)


def test_ranks_and_nodes_name_any_shape_that_divides_the_machine() -> None:
    assert parse_shapes("32x4,4x1,8x4", Shape(64, 8, 8)) == (
        Shape(32, 4, 8),
        Shape(4, 1, 4),
        Shape(8, 4, 2),
    )


def test_a_shape_with_a_word_is_called_by_it() -> None:
    names = parse_shape_names("8x1,4x2,2x2")
    assert [named.name for named in shapes_named(names, TWO_HOSTS)] == ["node", "4x2", "rail"]


def test_all_shapes_of_a_machine_have_the_words_first() -> None:
    assert [named.name for named in shapes_dividing(Shape(8, 2, 4))] == [
        "whole", "node", "rail", "pairs", "4x2",
    ]  # fmt: skip
    of_three = [named.name for named in shapes_dividing(Shape(6, 3, 2))]
    assert of_three == ["whole", "node", "rail"], "two of three nodes leave one over"
    assert [named.name for named in shapes_dividing(Shape(5, 2, 0))] == ["whole"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ONE_HOST),
        ("host", ONE_HOST),
        ("rail", ONE_HOST),
        ("node", Shape(2, 2, 1)),
        ("pairs", Shape(6, 2, 3)),
        ("node", Shape(5, 2, 0)),
        ("4x2", Shape(5, 2, 0)),
        ("3x1", ONE_HOST),
        ("8x3", TWO_HOSTS),
        ("16x4", TWO_HOSTS),
        ("5x2", TWO_HOSTS),
        ("0x1", ONE_HOST),
        ("1x1", ONE_HOST),
        ("4 x 1", ONE_HOST),
        ("٤x1", ONE_HOST),
    ],
)
def test_what_a_machine_does_not_have_is_refused(text: str, whole: Shape) -> None:
    with pytest.raises(UsageError):
        parse_shapes(text, whole)


def test_ranks_are_divided_as_jobs_divide_them() -> None:
    whole = Shape(8, 2, 4)
    nodes = memberships(Shape(4, 1, 4), whole)
    assert nodes is not None
    assert [own.sibling for own in nodes] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [own.rank for own in nodes] == [0, 1, 2, 3] * 2
    rails = memberships(Shape(2, 2, 1), whole)
    assert rails is not None
    assert [own.sibling for own in rails] == [0, 1, 2, 3] * 2
    assert [own.rank for own in rails] == [0, 0, 0, 0, 1, 1, 1, 1]
    pairs = memberships(Shape(2, 1, 2), whole)
    assert pairs is not None
    assert [own.sibling for own in pairs] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert memberships(whole, whole) == tuple(Membership(0, rank) for rank in range(8))


@pytest.mark.parametrize(
    "shape", [Shape(2, 1, 2), Shape(4, 1, 4), Shape(4, 4, 1), Shape(8, 2, 4), Shape(8, 4, 2)]
)
def test_siblings_are_of_one_size_and_number_their_own_ranks(shape: Shape) -> None:
    places = memberships(shape, Shape(16, 4, 4))
    assert places is not None
    assert set(Counter(own.sibling for own in places).values()) == {shape.ranks}
    for sibling in {own.sibling for own in places}:
        ranks = [own.rank for own in places if own.sibling == sibling]
        assert ranks == list(range(shape.ranks))


@pytest.mark.parametrize(
    ("shape", "whole"),
    [
        (Shape(3, 1, 3), Shape(4, 1, 4)),
        (Shape(2, 2, 1), Shape(3, 3, 1)),
        (Shape(2, 2, 1), Shape(4, 1, 4)),
        (Shape(2, 1, 2), Shape(5, 2, 0)),
        (Shape(16, 2, 8), Shape(8, 2, 4)),
    ],
)
def test_a_shape_that_leaves_ranks_over_has_no_siblings(shape: Shape, whole: Shape) -> None:
    assert memberships(shape, whole) is None


def test_a_stride_puts_the_ranks_of_a_sibling_apart() -> None:
    whole = Shape(16, 2, 8)
    pairs = memberships(Shape(2, 1, 2), whole, 4)
    assert pairs is not None
    assert [own.sibling for own in pairs] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]
    assert [own.rank for own in pairs] == [0, 0, 0, 0, 1, 1, 1, 1] * 2
    across = memberships(Shape(4, 2, 2), whole, 2)
    assert across is not None
    assert [own.sibling for own in across] == [0, 1, 0, 1, 2, 3, 2, 3] * 2
    assert [own.rank for own in across] == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_siblings_of_every_stride_number_their_own_ranks(stride: int) -> None:
    places = memberships(Shape(4, 2, 2), Shape(16, 2, 8), stride)
    assert places is not None
    for sibling in range(4):
        assert [own.rank for own in places if own.sibling == sibling] == [0, 1, 2, 3]


def test_strides_divide_the_siblings_of_a_host() -> None:
    whole = Shape(24, 2, 12)
    assert strides(Shape(2, 1, 2), whole) == (1, 2, 3, 6)
    assert strides(Shape(12, 1, 12), whole) == strides(whole, whole) == (1,)
    assert strides(Shape(2, 2, 1), whole) == (1,)
    assert strides(Shape(5, 1, 5), whole) == strides(Shape(2, 1, 2), Shape(5, 2, 0)) == ()
