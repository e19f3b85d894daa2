"""A tuner's CSV as a baseline: its rows, what they choose, and what is refused."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import InputFileError
from tuccl.search.trials.baseline import Baseline, TunerRow, parse_baseline, read_baseline
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.presets import nccl_space
from tuccl.search.trials.space import Family, Space, with_profile

ONE_NODE, TWO_NODES = Shape(8, 1, 8), Shape(16, 2, 8)
RING, TREE, NVLS = NcclAlgorithm.RING, NcclAlgorithm.TREE, NcclAlgorithm.NVLS
LL, LL128, SIMPLE = NcclProtocol.LL, NcclProtocol.LL128, NcclProtocol.SIMPLE
ASKED = [each for each in COLLECTIVES if each.asks_tuner]


def parsed(*lines: str) -> Baseline:
    return parse_baseline("\n".join(lines), "site/nccl_tuner.conf")


def all_reduce(size_bytes: int, shape: Shape = ONE_NODE) -> Task:
    return Task(Collective.ALL_REDUCE, size_bytes, shape)


def space(shape: Shape = ONE_NODE) -> Space:
    """Ring and tree, each with all protocols."""
    return nccl_space(Collective.ALL_REDUCE, shape, knobs=())


def test_a_file_is_read_with_comments_a_header_and_short_rows() -> None:
    found = parsed(
        "\ufeff# a site's file\r",
        "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\r",
        "",
        "allreduce, 0 ,65536,tree,ll,8,1,-1\r",
        "\t# no row",
        "reducescatter,65537,-1,nvls,simple,-1,-1,16,1",
        "allgather,1,18446744073709551615,ring,ll128,0,2,2147483647,-1,0",
    )
    assert found.name == "nccl_tuner.conf"
    most = 2**64 - 1
    all_gather = Collective.ALL_GATHER
    assert list(map(astuple, found.rows)) == [
        (4, Collective.ALL_REDUCE, 0, 65536, TREE, LL, 8, 1, None, None, None),
        (6, Collective.REDUCE_SCATTER, 65537, most, NVLS, SIMPLE, 0, None, 16, 1, None),
        (7, all_gather, 1, most, RING, LL128, 0, 2, 2147483647, None, False),
    ]


GOOD = ["allreduce", "0", "1", "ring", "ll", "1", "1", "8", "-1", "-1"]


@pytest.mark.parametrize(
    ("cell", "text", "said"),
    [
        (0, "AllReduce", "operation 'AllReduce' is unknown to tuners: write allreduce"),
        (0, "alltoall", "unknown to tuners: use broadcast, reduce, allgather, reducescatter, allr"),
        (1, "-1", "minbytes '-1' is not a whole number from 0 to 18446744073709551615"),
        (1, "64K", "minbytes '64K' is not a whole number"),
        (1, "2", "minbytes 2 is above maxbytes 1, so that no call matches"),
        (2, "18446744073709551616", "maxbytes '18446744073709551616' is not a whole number"),
        (2, "٣", "maxbytes '\\u0663' is not a whole number"),
        (3, "rings", "algorithm 'rings' is unknown to tuners: use tree, ring, collnet_direct, "),
        (4, "LL", "protocol 'LL' is unknown to tuners: write ll"),
        (5, "-2", "channels '-2' is not a whole number from -1 to 2147483647"),
        (6, "2147483648", "nNodes '2147483648' is not a whole number"),
        (7, "", "cell 8 is empty, so that a tuner takes the next one for it: write -1"),
        (8, "1.0", "numPipeOps '1.0' is not a whole number"),
        (9, "2", "regBuff '2' is not a whole number from -1 to 1"),
    ],
)
def test_what_a_tuner_would_read_otherwise_is_refused_by_its_line(
    cell: int, text: str, said: str
) -> None:
    cells = [*GOOD[:cell], text, *GOOD[cell + 1 :]]
    with pytest.raises(InputFileError) as refused:
        parsed("# first", ",".join(GOOD), ",".join(cells))
    assert str(refused.value).startswith("site/nccl_tuner.conf, line 3: ")
    assert said in str(refused.value)


def test_rows_of_other_lengths_and_files_without_a_row_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="line 1: 7 cells, a row has 8 to 10: operation,minb"):
        parsed(",".join(GOOD[:7]))
    with pytest.raises(InputFileError, match="line 1: 12 cells, a row has 8 to 10"):
        parsed(",".join([*GOOD, "any", "-1"]))
    with pytest.raises(InputFileError, match="has no row: a tuner's row is operation,minbytes"):
        parsed("# nothing", "")
    with pytest.raises(InputFileError, match=r"missing\.csv: No such file or directory; name a"):
        read_baseline(tmp_path / "missing.csv")
    with pytest.raises(InputFileError, match=r"a folder, not a file; name a tuner's CSV"):
        read_baseline(tmp_path)
    heading = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff"
    with pytest.raises(InputFileError, match=r"run `optimize_config\.py -o nccl_tuner\.conf` on"):
        parsed(f"{heading},cost_metric", "allreduce,1024,tree,simple,2,1,8,-1,-1,0.15")


def test_the_first_row_that_matches_decides_if_nccl_has_its_choice() -> None:
    found = parsed(
        "allreduce,0,1000,nvls,simple,4,-1,-1",  # Not in the space.
        "allreduce,0,1000,tree,ll,2,2,-1",  # For other nodes.
        "allreduce,0,1000,tree,ll,4,1,16",  # For other ranks.
        "allreduce,0,1000,tree,ll,8,-1,-1,4",  # For calls that pipeline four operations.
        "allreduce,0,1000,tree,ll,16,1,8",
        "allreduce,0,2000,ring,ll,4,-1,-1",
    )
    assert [row.line for row in found.rows_of(all_reduce(1000))] == [1, 5, 6]
    assert found.configs(all_reduce(1000), space()) == (Config("tree", "LL", 16),)
    assert found.configs(all_reduce(1002), space()) == (Config("ring", "LL", 4),)
    assert found.configs(all_reduce(2002), space()) == ()
    assert found.configs(all_reduce(1000, TWO_NODES), space(TWO_NODES)) == (
        Config("tree", "LL", 2),
    )
    others = Task(Collective.ALL_GATHER, 1000, ONE_NODE)
    assert found.rows_of(others) == ()


def test_rows_for_registered_buffers_and_others_are_both_choices() -> None:
    found = parsed(
        "allreduce,0,1000,tree,ll,8,-1,-1,-1,1",
        "allreduce,0,1000,ring,ll,4,-1,-1,-1,0",
        "allreduce,0,1000,ring,ll,2,-1,-1",
    )
    chosen = found.configs(all_reduce(1000), space())
    assert chosen == (Config("ring", "LL", 4), Config("tree", "LL", 8))
    assert [choice.row.line for choice in found.choices(all_reduce(1000), space())] == [2, 1]


def test_a_call_counts_with_the_bytes_that_nccl_is_asked_for() -> None:
    """1,000 bytes are no whole elements of six ranks: 960 are called."""
    task = Task(Collective.ALL_GATHER, 1000, Shape(6, 1, 6))
    assert task.called_bytes == 960
    assert parsed("allgather,961,2000,ring,ll,1,-1,-1").rows_of(task) == ()
    assert len(parsed("allgather,0,960,ring,ll,1,-1,-1").rows_of(task)) == 1


def test_a_space_takes_the_numbers_of_channels_that_rows_ask_for() -> None:
    found = parsed(
        "allreduce,0,1000,ring,ll,12,-1,-1",
        "allreduce,0,1000,ring,simple,-1,-1,-1",
        "allreduce,0,1000,tree,ll,65,-1,-1",
        "allreduce,1001,2000,tree,ll128,48,-1,-1",
    )
    task, before = all_reduce(1000), space()
    after = found.admitted(task, before, None)
    own = (1, 2, 4, 8, 16, 24, 32, 64)
    ring_ll, ring_simple = (1, 2, 4, 8, 12, 16, 24, 32, 64), (*own, 0)
    channels = {(f.algorithm, f.protocol): f.nchannels for f in after.families}
    assert channels.pop(("default", "")) == (0,)
    assert (channels.pop(("ring", "LL")), channels.pop(("ring", "Simple"))) == (
        ring_ll,
        ring_simple,
    )
    assert set(channels.values()) == {own}
    assert found.configs(task, before) == ()
    assert found.configs(task, after) == (Config("ring", "LL", 12),)
    (choice,) = found.choices(task, before)
    assert (choice.row.line, choice.config) == (1, None)
    bounded = found.admitted(task, before, 8)
    assert bounded == before


def test_a_count_that_nccl_does_not_bound_is_left_to_it() -> None:
    collnet = Family("collnet_chain", "Simple", (0,), (0,), (0,))
    found = parsed("allreduce,0,1000,collnet_chain,simple,16,-1,-1")
    one = Space("test", (collnet,))
    assert found.admitted(all_reduce(8), one, None) == one
    assert found.configs(all_reduce(8), one) == (Config("collnet_chain", "Simple"),)


def test_a_choice_has_the_profile_of_its_space() -> None:
    profile = Config("ring", "LL", 4, 256, 0, 16).profile
    found = parsed("allreduce,0,1000,ring,ll,4,-1,-1")
    chosen = found.configs(all_reduce(8), with_profile(space(), profile))
    assert chosen == (Config("ring", "LL", 4, 256, 0, 16),)


@requires_shared_data
def test_nccls_own_example_is_read() -> None:
    found = read_baseline(SHARED_DATA / "nccl_tuner" / "nccl_tuner.conf")
    assert len(found.rows) == 9
    choices = found.choices(all_reduce(65536), space())
    # Registered buffers alone have a row of so few bytes.
    assert [(choice.row.line, choice.config) for choice in choices] == [
        (19, Config("tree", "Simple", 2))
    ]
    with pytest.raises(InputFileError, match=r"optimize_config\.py makes a tuner's"):
        read_baseline(SHARED_DATA / "nccl_tuner" / "sample_performance_data.csv")


counts = st.sampled_from([-1, 0, 1, 2, 8, 16, 2**31 - 1])
edges = st.sampled_from([0, 1, 1023, 1024, 1025, 2**32 - 1, 2**32, 2**60, 2**63, 2**64 - 1])
cells = st.tuples(
    st.sampled_from([each.short_name for each in ASKED]),
    edges,
    edges,
    st.sampled_from([each.value for each in NcclAlgorithm]),
    st.sampled_from([each.value.lower() for each in NcclProtocol]),
    counts,
    counts,
    counts,
    st.sampled_from([-1, 0, 1, 4]),
    st.sampled_from([-1, 0, 1]),
).map(lambda row: (row[0], *sorted(row[1:3]), *row[3:]))
blanks = st.sampled_from(["", " ", "\t", "  "])
RowCells = tuple[str, int, int, str, str, int, int, int, int, int]


def by_the_example(row: RowCells, task: Task, registered: int) -> bool:
    """Whether NCCL's example tuner takes a row for a call that is timed."""
    operation, least, most, _, _, _, nodes, ranks, pipelined, of_buffers = row
    return (
        operation == task.operation.short_name
        and least <= task.called_bytes <= most
        and nodes in {-1, task.shape.nodes}
        and ranks in {-1, task.shape.ranks}
        and pipelined in {-1, 1}
        and of_buffers in {-1, registered}
    )


@given(st.data(), st.lists(cells, min_size=1, max_size=8))
def test_any_file_is_read_as_it_is_meant_however_it_is_written(
    data: st.DataObject, rows: list[RowCells]
) -> None:
    lines: list[str] = []
    numbers = []
    for row in rows:
        lines += data.draw(st.lists(st.sampled_from(["", "# x,y", " # 1", "\t"]), max_size=2))
        shortest = 8 if row[8:] == (-1, -1) else 9 if row[9] == -1 else 10
        shown = row[: data.draw(st.integers(shortest, 10))]
        lines.append(",".join(f"{data.draw(blanks)}{cell}{data.draw(blanks)}" for cell in shown))
        numbers.append(len(lines))
    found = parse_baseline(data.draw(st.sampled_from(["\n", "\r\n"])).join(lines), "f")
    assert [row.line for row in found.rows] == numbers
    shape = data.draw(st.sampled_from([ONE_NODE, TWO_NODES, Shape(2, 2, 1)]))
    size = data.draw(st.sampled_from([0, 16, 1024, 2**32, 2**60]))
    task = Task(data.draw(st.sampled_from(ASKED)), size, shape)
    for registered in (0, 1):
        of_example = [n for n, row in zip(numbers, rows, strict=True)
                      if by_the_example(row, task, registered)]  # fmt: skip
        ours = [row.line for row in found.rows_of(task)
                if row.registered in {None, bool(registered)}]  # fmt: skip
        assert ours == of_example
    allowed = nccl_space(task.operation, shape, knobs=())
    admitted = found.admitted(task, allowed, None)
    pairs = {(family.algorithm, family.protocol) for family in allowed.families}
    wanted = set()
    for registered in (0, 1):
        for row in rows:
            protocol = {each.value.lower(): each.value for each in NcclProtocol}[row[4]]
            if by_the_example(row, task, registered) and (row[3], protocol) in pairs:
                if row[5] <= 64:
                    wanted.add(Config(row[3], protocol, max(0, row[5])))
                break
    chosen = found.configs(task, admitted)
    assert set(chosen) == wanted
    assert all(config in admitted for config in chosen)
    assert set(allowed) <= set(admitted)


@given(st.text(alphabet="allreduce,ring15-\n\r# \x00é٣", max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        assert parse_baseline(text, "f").rows
    except InputFileError as error:
        said = str(error)
    assert said == "" or (said.startswith("f") and said.isprintable())


def test_rows_are_told_apart_by_their_line() -> None:
    first, second = parsed(",".join(GOOD), ",".join(GOOD)).rows
    assert first != second
    assert replace(second, line=first.line) == first
    assert isinstance(first, TunerRow)
