"""Faked nodes: how many ranks and devices they have."""

from __future__ import annotations

import pytest

from tuccl.errors import UsageError
from tuccl.measuring.workers.laboratory import Laboratory, parse_node_sizes


@pytest.mark.parametrize(
    ("text", "nodes", "sizes"), [("2", 2, ()), ("1", 1, ()), ("3+1", 2, (3, 1)), ("2+2", 2, (2, 2))]
)
def test_nodes_are_named_by_number_or_by_sizes(
    text: str, nodes: int, sizes: tuple[int, ...]
) -> None:
    assert parse_node_sizes(text) == (nodes, sizes)


@pytest.mark.parametrize("text", ["", "0", "3+", "3+0", "-1", "two", "3,1", "\u0663"])
def test_what_names_no_nodes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is neither a number of nodes nor sizes"):
        parse_node_sizes(text)


def test_ranks_and_devices_of_faked_nodes() -> None:
    assert Laboratory().node_sizes(4) == ()
    equal = Laboratory(2)
    assert (equal.node_sizes(4), equal.devices(4), equal.ranks(4)) == ((2, 2), 4, 4)
    shared = Laboratory(2, share_gpus=True)
    assert (shared.node_sizes(8), shared.devices(8), shared.ranks(4)) == ((4, 4), 4, 8)
    uneven = Laboratory(2, sizes=(3, 1))
    assert (uneven.node_sizes(4), uneven.devices(4), uneven.ranks(8)) == ((3, 1), 4, 4)
    both = Laboratory(2, share_gpus=True, sizes=(2, 1))
    assert (both.node_sizes(3), both.devices(3), both.ranks(2)) == ((2, 1), 2, 3)
    assert both.notes()[-1].startswith("each GPU is used by up to 2 ranks")


def test_one_gpu_stands_in_for_nodes_of_several() -> None:
    shared = Laboratory(2, share_gpus=True, sizes=(3, 1))
    assert shared.on_gpus(4, 3) == shared
    squeezed = shared.on_gpus(4, 1)
    assert (squeezed.gpus, squeezed.devices(4), squeezed.node_sizes(4)) == (1, 1, (3, 1))
    assert squeezed.notes()[-1].startswith(
        "all ranks, also those of one node, share 1 GPU of this host"
    )
    assert "ranks of a node shared a GPU" in squeezed.conditions()
    host = Laboratory(1, share_gpus=True).on_gpus(4, 2)
    assert (host.devices(4), host.node_sizes(4)) == (2, ())
    assert Laboratory(1, share_gpus=True).on_gpus(4, 4).gpus == 0
