"""NCCL graph files: their format, and the rings and trees that NCCL builds from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from probes.files.read import shipped_machines
from probes.inputs.xml_tree import XmlElement, read_xml
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from synthesizer.experts import expert_algorithms
from synthesizer.experts.all_pairs import all_pairs_all_gather, all_pairs_alltoall
from synthesizer.experts.nccl_trees import TREE_PATTERNS, Pattern, nccl_tree, node_trees
from synthesizer.experts.ring import (
    Ring,
    ring_all_gather,
    ring_all_reduce,
    ring_broadcast,
    ring_reduce,
)
from synthesizer.formats.nccl_graph_figures import GraphMachine
from synthesizer.formats.nccl_graph_xml import nccl_graph_files
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Chunk, Program
from synthesizer.lower.lowering import lower
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import FormatError

Parents = tuple[int, ...]


@cache
def _machine(nodes: int, sketch: str = "", layout: str = NetworkLayout.FABRIC) -> GraphMachine:
    text = shipped_machines()["a100-8gpu-8nic"].read_text()
    network = Network(1.7, NetworkLayout(layout))
    topology = replicate(parse_nccl_xml(text, "a100-8gpu-8nic.xml"), nodes, network)
    sketches = {candidate.name: candidate for candidate in sketch_candidates(topology)}
    return GraphMachine(topology, sketches[sketch] if sketch else next(iter(sketches.values())))


def _trees(parents: Sequence[Parents]) -> Algorithm:
    """Return an all_reduce of one chunk per tree, each tree on a channel of its own."""
    program = Program(Collective.ALL_REDUCE, len(parents[0]), len(parents))
    for channel, parent in enumerate(parents):
        depth = [_depth(parent, rank) for rank in range(program.ranks)]
        order = sorted(range(program.ranks), key=lambda rank: -depth[rank])
        held = {rank: program.input(rank, channel) for rank in order}
        for rank in order[:-1]:
            held[parent[rank]] = _add(program, held[rank], held[parent[rank]], parent, channel)
        for rank in order[-2::-1]:
            target = program.output(rank, channel)
            held[rank] = program.copy(held[parent[rank]], target, channel)
    return lower(program, "trees")


def _add(program: Program, part: Chunk, total: Chunk, parent: Parents, channel: int) -> Chunk:
    at_root = parent[total.rank] < 0
    target = program.output(total.rank, channel) if at_root else program.scratch(total.rank)
    return program.reduce(part, target, total, channel)


def _depth(parent: Parents, rank: int) -> int:
    return 0 if parent[rank] < 0 else 1 + _depth(parent, parent[rank])


def _file(algorithm: Algorithm, machine: GraphMachine, node: int = 0) -> str:
    """The file of a node."""
    files = nccl_graph_files(algorithm, machine)
    return files[node % len(files)]


def _read(text: str) -> XmlElement:
    root = read_xml(text, "graph.xml")
    assert (root.tag, root.attributes, len(root.children)) == ("graphs", {"version": "1"}, 1)
    return root.children[0]


def _orders(graph: XmlElement, node: int) -> list[list[int]]:
    """Return the ranks by channel as NCCL reads them on a node of 8 GPUs: `dev` is hexadecimal."""
    assert len(graph.children) == int(graph.attributes["nchannels"])
    return [
        [8 * node + int(gpu.attributes["dev"], 16) for gpu in channel.children_of("gpu")]
        for channel in graph.children
    ]


def _nccl_rings(texts: Sequence[str]) -> list[dict[int, int]]:
    """Return each rank's next by channel: NCCL 2.30's ncclTopoPreset, Postset and connectRings."""
    orders = []
    for node, text in enumerate(texts):
        graph = _read(text)
        order = _orders(graph, node)
        if graph.attributes["crossnic"] == "2" and len(order) % 2 == 0 and node % 2:
            order = [order[number ^ 1] for number in range(len(order))]
        orders.append(order)
    rings = []
    for chains in zip(*orders, strict=True):
        whole = [rank for chain in chains for rank in chain]
        rings.append(dict(zip(whole, [*whole[1:], whole[0]], strict=True)))
    return rings


def _nccl_trees(texts: Sequence[str]) -> list[Parents]:
    """Return the parents of both trees of each channel: ncclTopoPreset and connectTrees."""
    found = []
    pattern = _read(texts[0]).attributes["pattern"]
    chains_of = [_orders(_read(text), node) for node, text in enumerate(texts)]
    for chains in zip(*chains_of, strict=True):
        for second in (False, True):
            parent = [-1] * (8 * len(texts))
            for chain in chains:
                for above, below in pairwise(chain):
                    parent[below] = above
            for node, children in enumerate(_pictured_tree(len(texts), second=second)):
                first_talker = {"1": 1, "2": 1, "3": 0}[pattern]
                second_talker = {"1": 0, "2": 1, "3": 0}[pattern]
                for child, talker in zip(children, (first_talker, second_talker), strict=True):
                    if child >= 0:
                        parent[chains[child][0]] = chains[node][talker]
            found.append(tuple(parent))
    return found


def _pictured_tree(nodes: int, *, second: bool) -> list[tuple[int, int]]:
    """Return first and second children, top down as in the drawing of src/graph/trees.cc."""
    children = [(-1, -1)] * nodes
    step = 1
    while 2 * step < nodes:
        step *= 2
    waiting = []
    if nodes > 1:
        children[0] = (-1, step)
        waiting = [(step, step // 2)]
    while waiting:
        node, reach = waiting.pop()
        left, right, down = -1, -1, reach
        if reach:
            left = node - reach
            waiting.append((left, reach // 2))
        while down and node + down >= nodes:
            down //= 2
        if down:
            right = node + down
            waiting.append((right, down // 2))
        children[node] = (left, right)
    if not second:
        return children

    def moved(node: int) -> int:
        return (node + 1) % nodes if nodes % 2 else nodes - 1 - node

    turned = [(-1, -1)] * nodes
    for node, pair in enumerate(children):
        left, right = (-1 if child < 0 else moved(child) for child in pair)
        turned[moved(node)] = (left, right)
    return turned


@given(st.integers(1, 70), st.booleans())
def test_trees_over_nodes_are_those_that_nccl_draws(nodes: int, second: bool) -> None:
    parent = node_trees(nodes)[second]
    drawn = _pictured_tree(nodes, second=second)
    assert parent.count(-1) == 1
    assert sorted(child for pair in drawn for child in pair if child >= 0) == sorted(
        node for node in range(nodes) if parent[node] >= 0
    )
    assert all(
        parent[child] == node for node, pair in enumerate(drawn) for child in pair if child >= 0
    )


def test_both_trees_over_six_nodes_by_hand() -> None:
    assert node_trees(6) == ((-1, 2, 4, 2, 0, 4), (1, 5, 3, 1, 3, -1))
    assert node_trees(1) == ((-1,), (-1,))


def _next(ring: Sequence[int]) -> dict[int, int]:
    return dict(zip(ring, [*ring[1:], ring[0]], strict=True))


RING = (0, 3, 1, 2, 6, 7, 5, 4)


def test_a_ring_on_one_node() -> None:
    text = _file(lower(ring_all_gather([RING, RING[::-1]]), "r"), _machine(1))
    graph = _read(text)
    assert graph.attributes == {
        "id": "0",
        "pattern": "4",
        "crossnic": "0",
        "nchannels": "12",
        "speedintra": "25",  # an NVSwitch port of 300 GB/s serves six copies of both rings
        "speedinter": "25",
        "latencyinter": "0",
        "typeintra": "NVL",
        "typeinter": "PIX",
        "samechannels": "0",
    }
    assert _nccl_rings([text]) == [_next(RING), _next(RING[::-1])] * 6
    assert not any(channel.children_of("net") for channel in graph.children)


@pytest.mark.parametrize("build", [ring_broadcast, ring_reduce])
def test_the_connection_that_closes_a_rooted_ring_carries_nothing(
    build: Callable[[Sequence[Ring], int, int], Program],
) -> None:
    algorithm = lower(build([RING], 5, 2), "r")
    assert _nccl_rings([_file(algorithm, _machine(1))]) == [_next(RING)] * 12


def test_equal_rings_share_a_file_and_enter_through_the_first_gpus_nic() -> None:
    ring = (*RING, *(rank + 8 for rank in RING))
    text = _file(lower(ring_all_reduce([ring, ring]), "r"), _machine(2, "full_mesh"))
    graph = _read(text)
    assert (graph.attributes["crossnic"], graph.attributes["samechannels"]) == ("0", "1")
    assert (graph.attributes["speedinter"], graph.attributes["typeinter"]) == ("12", "PIX")
    children = graph.children[0].children
    assert [child.tag for child in children] == ["net", *["gpu"] * 8, "net"]
    assert (children[0].attributes["dev"], children[-1].attributes["dev"]) == ("0", "0x4")
    assert _nccl_rings([text, text]) == [_next(ring)] * 2


def test_rings_that_change_places_on_every_second_node_share_a_file() -> None:
    back = RING[::-1]
    rings: list[Ring] = [
        (*RING, *(rank + 8 for rank in back)),
        (*back, *(rank + 8 for rank in RING)),
    ]
    text = _file(lower(ring_all_reduce(rings), "r"), _machine(2, "full_mesh"))
    assert _read(text).attributes["crossnic"] == "2"
    assert _nccl_rings([text, text]) == [_next(ring) for ring in rings]


def test_nodes_of_different_order_get_a_file_each() -> None:
    ring = (*RING, *(8 + rank for rank in range(8)))
    algorithm, machine = lower(ring_all_reduce([ring]), "r"), _machine(2, "full_mesh")
    texts = nccl_graph_files(algorithm, machine)
    assert len(set(texts)) == 2
    assert _nccl_rings(texts) == [_next(ring)]


@pytest.mark.long
@pytest.mark.parametrize("collective", [Collective.ALL_REDUCE, Collective.ALL_GATHER])
def test_ring_experts_of_two_nodes_come_out_as_they_went_in(collective: Collective) -> None:
    machine = _machine(2, layout=NetworkLayout.RAILS)
    rings = [a for a in expert_algorithms(collective, machine.sketch) if "_ring_" in a.name]
    assert rings
    for algorithm in rings:
        texts = [_file(algorithm, machine, node) for node in range(2)]
        sent = [
            {gpu.rank: tb.send_peer for gpu in algorithm.programs for tb in gpu.threadblocks
             if tb.channel == channel and tb.send_peer >= 0}
            for channel in range(algorithm.channels)
        ]  # fmt: skip
        assert _nccl_rings(texts) == sent


def test_a_chain_is_a_tree_on_one_node() -> None:
    parent = nccl_tree([RING], Pattern.BALANCED_TREE, second=False)
    text = _file(_trees([parent]), _machine(1))
    graph = _read(text)
    assert (graph.attributes["id"], graph.attributes["pattern"]) == ("1", "1")
    assert graph.attributes["speedintra"] == "25"  # of 150 for a chain both ways
    assert _orders(graph, 0) == [list(RING)] * 6


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("pattern", TREE_PATTERNS)
def test_double_trees_come_out_as_they_went_in(pattern: Pattern, nodes: int) -> None:
    chains = [tuple(8 * node + rank for rank in RING) for node in range(nodes)]
    trees = [nccl_tree(chains, pattern, second=second) for second in (False, True)]
    text = _file(_trees(trees), _machine(nodes, "full_mesh"))
    graph = _read(text)
    assert graph.attributes["nchannels"] == "1"
    assert _nccl_trees([text] * nodes) == trees
    ends = [net.attributes["dev"] for net in graph.children[0].children_of("net")]
    read = Pattern(int(graph.attributes["pattern"]))
    assert ends == (["0", "0"] if read is Pattern.TREE else ["0", "0x3"])


def _two_chains() -> list[tuple[int, ...]]:
    return [tuple(range(8)), tuple(range(8, 16))]


@cache
def _refused() -> list[tuple[Algorithm, GraphMachine, str]]:
    single, pair = _machine(1), _machine(2, "full_mesh")
    first = nccl_tree(_two_chains(), Pattern.TREE, second=False)
    star = (-1, 0, 0, *range(2, 7))
    entered_twice = (-1, 0, 1, 2, 3, 4, 5, 6, 0, 8, 9, 10, 0, 12, 13, 14)
    mixed = (*range(0, 16, 2), *range(1, 16, 2))
    return [
        (
            lower(all_pairs_all_gather(8), "a"),
            single,
            "a, channel 0: rank 0 sends to ranks 1 and 2",
        ),
        (lower(all_pairs_alltoall(8), "a"), single, "a: alltoall runs on neither ring nor tree"),
        (_trees([star]), single, "trees, channel 0: rank 0 has children 1 and 2 on its own node"),
        (_trees([first]), pair, "trees: its trees between nodes are not the two of NCCL's double"),
        (_trees([entered_twice]), pair, "ranks 8 and 12 of node 1 have their parents on other"),
        (lower(ring_all_gather([mixed]), "m"), _machine(2, "full_mesh"), "visits the nodes in"),
        (lower(ring_all_gather([tuple(range(8))]), "r"), pair, "r has 8 ranks, the machine 16"),
        (lower(ring_all_gather([(0, 1)]), "r"), single, "r has 2 ranks, the machine 8"),
    ]


@pytest.mark.parametrize("case", range(len(_refused())))
def test_what_nccl_does_not_run_is_refused_with_the_reason(case: int) -> None:
    algorithm, machine, message = _refused()[case]
    with pytest.raises(FormatError, match=r"^[^\n]*$") as error:
        _file(algorithm, machine, 0)
    assert message in str(error.value)


def test_an_edge_that_is_not_there() -> None:
    ring = tuple(range(16))
    rails = _machine(2, layout=NetworkLayout.RAILS)
    with pytest.raises(FormatError, match="has no edge from rank 7 to rank 8"):
        _file(lower(ring_all_gather([ring]), "r"), rails, 0)


@pytest.mark.parametrize("rings", [1, 2, 24])
def test_channels_are_listed_until_none_carries_more_than_25_gb_per_s(rings: int) -> None:
    """Ports of 300 GB/s: one ring 12 times, two of 150 six times; 24 rings need no copies."""
    algorithm = lower(ring_all_gather([RING, *[RING[::-1]] * (rings - 1)]), "r")
    (text,) = nccl_graph_files(algorithm, _machine(1))
    assert _read(text).attributes["nchannels"] == str(max(12, rings))
    assert float(_read(text).attributes["speedintra"]) <= 25


def test_a_slow_network_needs_no_copies() -> None:
    """Rings over two nodes are limited by NICs of 24 GB/s, whatever the speed of NVLink."""
    ring = (*RING, *(8 + rank for rank in range(8)))
    texts = nccl_graph_files(lower(ring_all_reduce([ring]), "r"), _machine(2, "full_mesh"))
    assert [_read(text).attributes["nchannels"] for text in texts] == ["1", "1"]
    assert _nccl_rings(texts) == [_next(ring)]


def test_more_channels_than_nccl_takes() -> None:
    ring = lower(ring_all_gather([RING]), "r")
    programs = tuple(
        replace(
            gpu,
            threadblocks=tuple(
                replace(block, channel=channel)
                for channel in range(33)
                for block in gpu.threadblocks
            ),
        )
        for gpu in ring.programs
    )
    with pytest.raises(FormatError, match="r: 33 channels; NCCL takes at most 32"):
        _file(replace(ring, programs=programs), _machine(1))


@requires_shared_data
@pytest.mark.parametrize("path", sorted((SHARED_DATA / "nccl_topo").glob("*.graph.xml")), ids=str)
def test_files_have_the_form_of_real_dumps(path: Path) -> None:
    """Attributes and elements have their order, path types are known to NCCL."""
    real = read_xml(path.read_text(), str(path))
    texts = [
        _file(lower(ring_all_gather([tuple(range(8 * nodes))]), "r"), machine)
        for nodes, machine in ((1, _machine(1)), (2, _machine(2, "full_mesh")))
    ]
    for written in (read_xml(text, "written") for text in texts):
        assert written.attributes == real.attributes
        for graph in written.children:
            assert list(graph.attributes) == list(real.children[0].attributes)
            ring = next(g for g in real.children if g.attributes["id"] == graph.attributes["id"])
            assert graph.attributes["pattern"] == ring.attributes["pattern"]
            for channel in graph.children:
                tags = [child.tag for child in channel.children if child.tag != "gpu"]
                assert tags in ([], ["net", "net"])
                assert all(set(child.attributes) == {"dev"} for child in channel.children)
    dumped = {
        child.tag for g in real.children for channel in g.children for child in channel.children
    }
    assert dumped <= {"net", "gpu"}
